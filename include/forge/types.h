/// The plain types that the language, the IR and the runtime share: element types, symbolic dimensions, source
/// locations. No behaviour beyond printing and comparing.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace forge {

/// Element types. Names follow PyTorch's, in short: BF16 is torch.bfloat16.
enum class DType : std::uint8_t { Bool, I32, I64, F16, BF16, F32, F64 };

inline constexpr DType F16 = DType::F16;
inline constexpr DType BF16 = DType::BF16;
inline constexpr DType F32 = DType::F32;
inline constexpr DType F64 = DType::F64;

std::string to_string(DType dtype);
std::size_t size_in_bytes(DType dtype);
bool is_float(DType dtype);
bool is_half(DType dtype);  ///< f16 or bf16: the types that a compile option may exchange for another

/// One dimension: an integer, or `factor * symbol` with a symbolic size.
struct Dim {
    std::int64_t factor = 1;
    std::string symbol;  ///< empty: the dimension is the constant `factor`

    Dim() = default;
    Dim(std::int64_t size) : factor(size) {}  // NOLINT(google-explicit-constructor): `{T, 4}` must read naturally
    explicit Dim(std::string name) : symbol(std::move(name)) {}

    [[nodiscard]] bool is_constant() const { return symbol.empty(); }
    friend bool operator==(const Dim&, const Dim&) = default;
    friend Dim operator*(std::int64_t n, Dim d) {
        if (__builtin_mul_overflow(n, d.factor, &d.factor)) d.factor = 0;  // no size: definitions refuse it
        return d;
    }
};

using Shape = std::vector<Dim>;

std::string to_string(const Dim& dim);
std::string to_string(const Shape& shape);

/// `auto [T, H, K, V] = dims("T", "H", "K", "V");`. "T" is the token axis; inside the phases it becomes the chunk
/// axis "C". The axis after it is the head axis, whatever its name.
template <class... Names>
std::array<Dim, sizeof...(Names)> dims(Names... names) {
    return {Dim(std::string(names))...};
}

/// The numbers from low to high, an infinite end included: what an input may be declared to hold.
struct Range {
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();

    [[nodiscard]] bool contains(double x) const { return low <= x && x <= high; }
    friend bool operator==(const Range&, const Range&) = default;
};
/// Of logarithms of decays, of decays and weights, and of any number.
inline constexpr Range kLogDecays{-std::numeric_limits<double>::infinity(), 0}, kZeroToOne{0, 1}, kAnyNumber{};

/// A place in the user's program (or in an IR file). Places are copied with every operation of a program: all of a file
/// share its name, which stays until the process ends. Made by a constructor, not by assigning to `file`.
struct Location {
    std::string_view file;
    unsigned line = 0;
    unsigned column = 0;

    Location() = default;
    Location(std::string_view f, unsigned l, unsigned c) : file(lasting(f)), line(l), column(c) {}
    Location(const std::source_location& loc)  // NOLINT(google-explicit-constructor)
        : Location(loc.file_name(), loc.line(), loc.column()) {}

    [[nodiscard]] bool known() const { return line != 0; }
    friend bool operator==(const Location&, const Location&) = default;

  private:
    static std::string_view lasting(std::string_view text);  ///< the one copy of this text that stays
};

std::string to_string(const Location& loc);  ///< `mine.cpp:12:3`

}  // namespace forge
