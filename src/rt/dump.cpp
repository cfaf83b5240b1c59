#include "rt/dump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "rt/json.h"
#include "rt/seal.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_program.h"

namespace forge::rt {
namespace {

using runtime::Arguments;
using runtime::TensorOfCall;
using runtime::View;

constexpr std::int64_t kDumpFormat = 1;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;
constexpr std::array kTypes = {"bool", "i32", "i64", "f16", "bf16", "f32", "f64"};  // in the order of DType

/// From the lowest to the highest element, both counted from the one with index 0.
struct Extent {
    std::int64_t least = 0, most = -1;
};

Extent extent_of(const DumpedTensor& tensor) {
    Extent extent{0, 0};
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
        if (tensor.shape[axis] == 0) return {};
        const std::int64_t reach = (tensor.shape[axis] - 1) * tensor.strides[axis];
        (reach < 0 ? extent.least : extent.most) += reach;
    }
    return extent;
}

DumpedTensor described(std::string name, const View& view) {
    DumpedTensor tensor;
    tensor.name = std::move(name), tensor.dtype = view.dtype;
    tensor.given = view.is_given() && (view.data || view.is_empty());
    for (int axis = 0; axis < view.rank; ++axis) {
        tensor.shape.push_back(view.shape[axis]);
        tensor.strides.push_back(view.stride(axis));
    }
    return tensor;
}

/// Where a call's tensors lie: in this process's memory, or in a GPU's, behind what its stream still has to do.
class Memory {
  public:
    Memory(const Loaded& loaded, void* stream) : stream_(stream) {
        if (loaded.calls) scope_.emplace(dynamic_cast<const runtime::CudaProgram&>(*loaded.kernels).device());
    }

    void wait() const {
        if (!scope_) return;
        const auto& cuda = runtime::CudaDriver::get();
        cuda.check(cuda.stream_synchronize(static_cast<runtime::CudaStream>(stream_)),
                   "waiting for a stream, to write a call to a file (not while it is being captured)");
    }

    [[nodiscard]] std::string of(const DumpedTensor& tensor, const View& view) const {
        const std::size_t bytes = tensor.memory_bytes();
        if (!tensor.given || bytes == 0) return {};
        const char* const lowest = static_cast<const char*>(view.data) -
                                   tensor.first() * static_cast<std::int64_t>(size_in_bytes(tensor.dtype));
        if (!scope_) return {lowest, bytes};
        std::string content(bytes, '\0');
        const auto& cuda = runtime::CudaDriver::get();
        const auto from = reinterpret_cast<runtime::CudaPointer>(lowest);  // NOLINT: the driver's pointers are numbers
        cuda.check(cuda.copy_to_host(content.data(), from, bytes), "copying from the device");
        return content;
    }

    [[nodiscard]] DumpedTensor with_contents(std::string name, const View& view) const {
        DumpedTensor tensor = described(std::move(name), view);
        tensor.before = of(tensor, view);
        return tensor;
    }

  private:
    void* stream_;
    std::optional<runtime::CudaScope> scope_;
};

bool is_result(const TensorOfCall& tensor) {
    using runtime::TensorKind;
    return tensor.kind != TensorKind::Input && tensor.kind != TensorKind::Head &&
           tensor.kind != TensorKind::InitialState;
}

// ---------------------------------------------------------------------------------------------- the header

Json numbers(const std::vector<std::int64_t>& list) {
    Json json = Json::list();
    for (const std::int64_t n : list) json.add(n);
    return json;
}

Json header_of(const DumpedTensor& tensor) {
    Json json = Json::object({});
    json.add("name", tensor.name);
    json.add("given", tensor.given);
    json.add("dtype", kTypes[static_cast<std::size_t>(tensor.dtype)]);
    json.add("shape", numbers(tensor.shape)), json.add("strides", numbers(tensor.strides));
    json.add("same_as", std::int64_t{tensor.same_as});
    json.add("before", static_cast<std::int64_t>(tensor.before.size()));
    json.add("after", static_cast<std::int64_t>(tensor.after.size()));
    return json;
}

/// All tensors of a call, those that it need not have last.
template <class Call>
auto all_of(Call& call) {
    std::vector<decltype(&call.cu_seqlens)> list;
    for (auto& tensor : call.tensors) list.push_back(&tensor);
    for (auto* tensor :
         {&call.cu_seqlens, &call.initial_slots, &call.final_slots, &call.has_initial_state, &call.chunk_slots})
        list.push_back(tensor);
    return list;
}

std::string text_of(const DumpedCall& call) {
    Json json = Json::object({});
    json.add("forge_call", kDumpFormat);
    for (const auto& [name, text] : {std::pair("build", &call.build),
                                     {"definition", &call.definition},
                                     {"text", &call.text},
                                     {"entry", &call.entry},
                                     {"target", &call.target},
                                     {"schedule", &call.schedule}})
        json.add(name, *text);
    json.add("dtype", kTypes[static_cast<std::size_t>(call.dtype)]);
    Json sizes = Json::object({});
    for (const auto& [symbol, size] : call.sizes) sizes.add(symbol, size);
    json.add("sizes", std::move(sizes)), json.add("chunk", call.chunk);
    Json symbols = Json::list(), scalars = Json::list(), tensors = Json::list();
    for (const auto& [symbol, size] : call.sizes) symbols.add(symbol);
    for (const double x : call.scalars) scalars.add(fmt::format("{}", x));  // JSON has no infinities
    for (const DumpedTensor* tensor : all_of(call)) tensors.add(header_of(*tensor));
    json.add("symbols", std::move(symbols)), json.add("scalars", std::move(scalars));
    json.add("tensors", std::move(tensors));
    std::string text = print(json);
    text += '\0';
    for (const DumpedTensor* tensor : all_of(call)) (text += tensor->before) += tensor->after;
    return sealed(std::move(text));
}

void write(const std::string& content, const std::string& path) {
    const std::string beside = fmt::format("{}.{}", path, getpid());
    const auto fail = [&](const std::string& file) {
        const int error = errno;
        std::remove(beside.c_str());
        throw RuntimeError(
            fmt::format("{}: cannot be written: {}", file, strerror(error)));  // NOLINT(concurrency-mt-unsafe)
    };
    std::FILE* file = std::fopen(beside.c_str(), "wbe");
    if (!file) fail(beside);
    const bool whole = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    if (std::fclose(file) != 0 || !whole) fail(beside);
    if (std::rename(beside.c_str(), path.c_str()) != 0) fail(path);
}

std::string content_of(const std::string& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
    if (!file) throw RuntimeError(fmt::format("{}: cannot be read: {}", path, strerror(errno)));  // NOLINT
    std::string content;
    std::vector<char> part(std::size_t{1} << 16);
    while (const std::size_t read = std::fread(part.data(), 1, part.size(), file.get()))
        content.append(part.data(), read);
    return content;
}

// ---------------------------------------------------------------------------------------------- reading

DType type_named(const std::string& name) {
    const auto found = std::find(kTypes.begin(), kTypes.end(), name);
    if (found == kTypes.end()) throw RuntimeError(fmt::format("expected an element type, got '{}'", name));
    return static_cast<DType>(found - kTypes.begin());
}

std::vector<std::int64_t> numbers_in(const Json& json, std::int64_t least) {
    std::vector<std::int64_t> list;
    for (const Json& item : json.as_list()) list.push_back(item.as_integer(least, kMostBytes));
    return list;
}

class BlobReader {
  public:
    explicit BlobReader(std::string_view blobs) : blobs_(blobs) {}

    void read(DumpedTensor& tensor, const Json& json, int before) {
        tensor.name = json.at("name").as_text(), tensor.given = json.at("given").as_bool();
        tensor.dtype = type_named(json.at("dtype").as_text());
        tensor.shape = numbers_in(json.at("shape"), 0), tensor.strides = numbers_in(json.at("strides"), -kMostBytes);
        if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > runtime::kMostRank + 3)
            throw RuntimeError(fmt::format("tensor '{}': expected a stride for each axis", tensor.name));
        tensor.same_as = static_cast<int>(json.at("same_as").as_integer(-1, before - 1));
        const std::size_t whole = tensor.given ? tensor.memory_bytes() : 0;
        tensor.before = blob(json.at("before"), tensor.name, tensor.same_as < 0 ? whole : 0);
        const bool has_results = json.at("after").as_integer(0, kMostBytes) > 0;
        tensor.after = blob(json.at("after"), tensor.name, has_results ? whole : 0);
    }
    [[nodiscard]] bool at_end() const { return blobs_.empty(); }

  private:
    std::string blob(const Json& size, const std::string& name, std::size_t expected) {
        const auto bytes = static_cast<std::size_t>(size.as_integer(0, kMostBytes));
        if (bytes != expected || bytes > blobs_.size())
            throw RuntimeError(
                fmt::format("tensor '{}': expected {} bytes, got {} of {}", name, expected, bytes, blobs_.size()));
        std::string content(blobs_.substr(0, bytes));
        blobs_.remove_prefix(bytes);
        return content;
    }
    std::string_view blobs_;
};

DumpedCall parsed_call(const Json& json, std::string_view blobs) {
    if (const std::int64_t format = json.at("forge_call").as_integer(0, kMostBytes); format != kDumpFormat)
        throw RuntimeError(fmt::format("a call of format {}; this Forge reads format {}", format, kDumpFormat));
    DumpedCall call;
    call.build = json.at("build").as_text(), call.definition = json.at("definition").as_text();
    call.text = json.at("text").as_text(), call.entry = json.at("entry").as_text();
    call.target = json.at("target").as_text(), call.schedule = json.at("schedule").as_text();
    call.dtype = type_named(json.at("dtype").as_text());
    call.chunk = json.at("chunk").as_integer(1, 1 << 10);
    for (const Json& symbol : json.at("symbols").as_list())
        call.sizes[symbol.as_text()] = json.at("sizes").at(symbol.as_text().c_str()).as_integer(1, kMostBytes);
    for (const Json& x : json.at("scalars").as_list()) {
        char* end = nullptr;
        call.scalars.push_back(std::strtod(x.as_text().c_str(), &end));
        if (end == x.as_text().c_str()) throw RuntimeError("scalars: expected numbers");
    }
    const std::vector<Json>& tensors = json.at("tensors").as_list();
    constexpr std::size_t kOthers = 5;
    if (tensors.size() < kOthers + 1) throw RuntimeError("tensors: expected some");
    call.tensors.resize(tensors.size() - kOthers);
    BlobReader reader(blobs);
    int number = 0;
    for (DumpedTensor* tensor : all_of(call)) {
        reader.read(*tensor, tensors[static_cast<std::size_t>(number)], number);
        ++number;
    }
    if (!reader.at_end()) throw RuntimeError("expected nothing after the last tensor");
    for (const DumpedTensor& tensor : call.tensors)
        if (tensor.same_as >= 0 &&
            call.tensors[static_cast<std::size_t>(tensor.same_as)].memory_bytes() != tensor.memory_bytes())
            throw RuntimeError(fmt::format("tensor '{}': expected the size of what it is the same as", tensor.name));
    return call;
}

}  // namespace

std::int64_t DumpedTensor::first() const { return -extent_of(*this).least; }

std::size_t DumpedTensor::memory_bytes() const {
    double elements = 1;  // which no product of sizes and strides overflows
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (shape[axis] == 0) return 0;
        elements += std::abs(static_cast<double>(shape[axis] - 1) * static_cast<double>(strides[axis]));
        if (elements > static_cast<double>(kMostBytes))
            throw RuntimeError(fmt::format("tensor '{}': more than memory can have", name));
    }
    const Extent extent = extent_of(*this);
    return static_cast<std::size_t>(extent.most - extent.least + 1) * size_in_bytes(dtype);
}

void dump_call(const EntryPoint& entry, const Arguments& call, const std::string& build, const std::string& path) {
    const runtime::Callable& callable = entry.callable();
    runtime::refuse_missing(callable, call), runtime::refuse_extremes(callable, call);
    const Loaded& loaded = entry.select(call);
    const Memory memory(loaded, call.stream);
    memory.wait();
    DumpedCall dumped;
    dumped.build = build, dumped.definition = entry.definition(), dumped.text = entry.text();
    dumped.entry = entry.entry().name, dumped.target = entry.target();
    dumped.schedule = loaded.about->schedule, dumped.dtype = loaded.about->dtype;
    dumped.chunk = loaded.about->callable.chunk;
    for (std::size_t s = 0; s < entry.entry().symbols.size(); ++s)
        dumped.sizes[entry.entry().symbols[s].name] = loaded.about->sizes[s];
    dumped.scalars.assign(call.scalars, call.scalars + callable.scalars.size());
    for (std::size_t i = 0; i < callable.tensors.size(); ++i) {
        DumpedTensor tensor = described(callable.tensors[i].argument(), call.tensors[i]);
        for (std::size_t other = 0; other < i && tensor.given; ++other)
            if (call.tensors[other].data == call.tensors[i].data && dumped.tensors[other].given &&
                dumped.tensors[other].same_as < 0 && dumped.tensors[other].strides == tensor.strides &&
                dumped.tensors[other].shape == tensor.shape)
                tensor.same_as = static_cast<int>(other);
        if (tensor.same_as < 0) tensor.before = memory.of(tensor, call.tensors[i]);
        dumped.tensors.push_back(std::move(tensor));
    }
    dumped.cu_seqlens = memory.with_contents("cu_seqlens", call.cu_seqlens);
    dumped.initial_slots = memory.with_contents("initial_slots", call.initial_slots);
    dumped.final_slots = memory.with_contents("final_slots", call.final_slots);
    dumped.has_initial_state = memory.with_contents("has_initial_state", call.has_initial_state);
    dumped.chunk_slots = memory.with_contents("chunk_slots", call.chunk_slots);
    write(text_of(dumped), path);  // before the call, which may end the process
    entry.launch(call);
    memory.wait();
    for (std::size_t i = 0; i < callable.tensors.size(); ++i)
        if (is_result(callable.tensors[i])) dumped.tensors[i].after = memory.of(dumped.tensors[i], call.tensors[i]);
    write(text_of(dumped), path);
}

DumpedCall read_dump(const std::string& path) try {
    const std::string content = content_of(path);
    if (content.compare(0, 1, "{") != 0 || content.find("\"forge_call\"") > 64)
        throw RuntimeError("expected a call that Forge wrote; this is something else");
    const std::size_t size = check_seal(content, "this file"), end = content.find('\0');
    if (end >= size) throw RuntimeError("expected a header and tensors");
    return parsed_call(parse_json(content.substr(0, end), "the header"),
                       std::string_view(content).substr(end + 1, size - end - 1));
} catch (const RuntimeError& error) {
    throw RuntimeError(std::string(error.what()).starts_with(path) ? error.what()
                                                                   : fmt::format("{}: {}", path, error.what()));
}

}  // namespace forge::rt
