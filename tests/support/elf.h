/// What a test asks of a cubin, which is an ELF file of 64 bits.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace forge::tests {

/// Bytes of instructions, by kernel.
inline std::map<std::string, std::int64_t> text_of_kernels(const std::string& cubin) {
    const std::string kPrefix = ".text.";
    const auto at = [&]<class T>(std::uint64_t place, T what) {
        std::memcpy(&what, cubin.data() + place, sizeof what);
        return what;
    };
    const auto file = at(0, Elf64_Ehdr{});
    const auto section = [&](unsigned n) { return at(file.e_shoff + n * file.e_shentsize, Elf64_Shdr{}); };
    const std::uint64_t names = section(file.e_shstrndx).sh_offset;
    std::map<std::string, std::int64_t> found;
    for (unsigned n = 0; n < file.e_shnum; ++n) {
        const std::string name = cubin.c_str() + names + section(n).sh_name;
        if (name.starts_with(kPrefix))
            found[name.substr(kPrefix.size())] = static_cast<std::int64_t>(section(n).sh_size);
    }
    return found;
}

}  // namespace forge::tests
