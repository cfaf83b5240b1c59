#include "tests/package/built.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "rt/files.h"
#include "rt/seal.h"
#include "tests/novel/novel.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

namespace fs = std::filesystem;

fs::path new_folder() {
    std::string name = (fs::temp_directory_path() / "forge-package-XXXXXX").string();
    if (!mkdtemp(name.data())) throw RuntimeError("cannot make a folder");
    return name;
}

/// A folder that is gone when the process ends.
struct Folder {
    fs::path path = new_folder();
    ~Folder() {
        std::error_code error;
        fs::remove_all(path, error);
    }
};

}  // namespace

package::Request request_of_built() {
    package::Request request;
    request.name = "built";
    request.definitions = {variants::find("scalar_gla")->make().define(), variants::find("delta_net")->make().define()};
    request.targets = {"x86-64-v4", "x86-64", "x86-64-v3"};
    request.dtypes = {F32, BF16};
    request.sizes = {{{"K"}, {32, 64}}, {{"V"}, {32}}};
    request.tokens = {kTokens}, request.tasks = {kTasks};
    request.threads = 2, request.jobs = 2;
    request.shared = true;
    request.build = "test";
    return request;
}

const fs::path& built() {
    static const Folder kFolder;
    static const bool kBuilt = [] {
        package::Request request = request_of_built();
        request.output = kFolder.path.string();
        package::build(request);
        return true;
    }();
    static_cast<void>(kBuilt);
    return kFolder.path;
}

Copy::Copy(const fs::path& from) : path_(new_folder()) {
    for (const auto& file : fs::directory_iterator(from)) fs::copy(file.path(), path_);
}

Copy::~Copy() {
    std::error_code error;
    fs::remove_all(path_, error);
}

std::string Copy::read(const std::string& file) const {
    const std::ifstream in(path_ / file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

void Copy::write(const std::string& file, const std::string& content) const {
    std::ofstream(path_ / file, std::ios::binary) << content;
}

void Copy::seal() const {
    std::string seals;
    for (const auto& entry : fs::directory_iterator(path_)) {
        const std::string name = entry.path().filename().string();
        const std::string content = read(name);
        if (name != rt::kSealsFile) seals += fmt::format("{} {} {}\n", rt::fingerprint(content), content.size(), name);
    }
    write(rt::kSealsFile, rt::sealed(seals));
}

CCall::CCall(const runtime::Callable& callable, const Call& call) {
    using Kind = runtime::TensorKind;
    for (const runtime::TensorOfCall& tensor : callable.tensors) {
        const auto& group = tensor.kind == Kind::InitialState ? call.initial_states
                            : tensor.kind == Kind::FinalState ? call.final_states
                                                              : call.tensors;
        const auto found = group.find(tensor.name);
        tensors_.push_back(tensor_of(found == group.end() ? nullptr : &found->second));
    }
    for (const std::string& name : callable.scalars) scalars_.push_back(call.scalars.at(name));
    args.struct_size = sizeof(args);
    args.tensors = tensors_.data(), args.tensor_count = tensors_.size();
    args.scalars = scalars_.data(), args.scalar_count = scalars_.size();
    if (call.cu_seqlens) offsets_ = tensor_of(&*call.cu_seqlens), args.cu_seqlens = &offsets_;
    if (call.initial_slots) args.initial_slots = call.initial_slots->data;
    if (call.final_slots) args.final_slots = call.final_slots->data;
    if (call.has_initial_state) args.has_initial_state = static_cast<unsigned char*>(call.has_initial_state->data);
    args.wide_slots = call.initial_slots && call.initial_slots->dtype == DType::I64;
}

forge_tensor CCall::tensor_of(const TensorView* view) {
    if (!view) return {};
    static const std::map<DType, forge_dtype> kTypes = {{DType::I32, FORGE_I32},
                                                        {DType::I64, FORGE_I64},
                                                        {DType::F16, FORGE_F16},
                                                        {DType::BF16, FORGE_BF16},
                                                        {DType::F32, FORGE_F32}};
    return {view->data, view->shape.data(), view->strides.empty() ? nullptr : view->strides.data(),
            static_cast<std::int32_t>(view->shape.size()), kTypes.at(view->dtype)};
}

Opened::Opened(const fs::path& path, const char* device, int threads) {
    const forge_rt_options options = {sizeof(options), device, threads};
    if (forge_rt_open(path.c_str(), &options, &package_) != FORGE_OK) throw RuntimeError(forge_rt_error());
    manifest_ = rt::parse_manifest(forge_rt_manifest(package_), path.string());
}

const forge_rt_entry* Opened::find(const std::string& definition, const std::string& entry) const {
    const forge_rt_entry* found = nullptr;
    EXPECT_EQ(forge_rt_find(package_, definition.c_str(), entry.c_str(), &found), FORGE_OK) << forge_rt_error();
    return found;
}

const runtime::Callable& Opened::callable(const std::string& definition, const std::string& entry) const {
    for (const rt::Compiled& kernels : manifest_.kernels) {
        const rt::Entry& of = manifest_.entries[static_cast<std::size_t>(kernels.entry)];
        if (of.name == entry && manifest_.definitions[static_cast<std::size_t>(of.definition)].name == definition)
            return kernels.callable;
    }
    throw RuntimeError("not in the package: " + definition + " " + entry);
}

}  // namespace forge::tests
