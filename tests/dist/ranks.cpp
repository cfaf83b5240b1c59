#include "tests/dist/ranks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

namespace forge::tests {

using check::OwnedTensor;

std::vector<std::exception_ptr> on_ranks(int size, const dist::Options& options,
                                         const std::function<void(dist::Group&)>& body) {
    const std::vector<dist::Bootstrap> ranks = dist::threads(size, options.timeout);
    std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < thrown.size(); ++r)
        threads.emplace_back([&, r] {
            try {
                dist::Group group(ranks[r], options);
                body(group);
            } catch (...) {
                thrown[r] = std::current_exception();
            }
        });
    for (std::thread& t : threads) t.join();
    return thrown;
}

void rethrow(const std::vector<std::exception_ptr>& thrown) {
    for (const std::exception_ptr& e : thrown)
        if (e) std::rethrow_exception(e);
}

void run_on_ranks(const Attention& attention, check::Buffers& buffers, const ir::Definition& def, int size,
                  const dist::Options& options, const std::vector<std::int64_t>& shards) {
    std::vector<std::unique_ptr<RankBuffers>> ranks;
    for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<RankBuffers>(buffers, def, r, size, shards));
    rethrow(on_ranks(size, options, [&](dist::Group& group) {
        const RankBuffers& mine = *ranks[static_cast<std::size_t>(group.rank())];
        dist::run(attention, mine.call(), group, mine.part());
    }));
    for (auto& [name, x] : buffers.final_states)
        for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, 0);
    for (const auto& rank : ranks) rank->merge();
}

RankBuffers::RankBuffers(check::Buffers& whole, const ir::Definition& def, int rank, int size,
                         const std::vector<std::int64_t>& shards)
    : whole_(whole), def_(def), packed_(!whole.problem().lengths.empty()) {
    std::vector<std::int64_t> offsets{0};
    for (const std::int64_t n : whole.problem().lengths) offsets.push_back(offsets.back() + n);
    if (!packed_) offsets.push_back(whole.problem().T);
    partition_ = dist::SeqPartition::build(offsets, rank, size, shards);
    if (!packed_) partition_.has_prev = rank > 0, partition_.has_next = rank + 1 < size;
    for (const auto& [name, x] : whole.initial_states) {
        OwnedTensor mine = rows_of(x);
        const std::int64_t rows = mine.shape[0], row = rows > 0 ? mine.count() / rows : 0;
        // A sum over tokens begins with what goes in once; what else goes on from another rank is not looked at.
        for (std::int64_t n = 0; partition_.has_prev && n < (packed_ ? 1 : rows); ++n)
            for (std::int64_t i = 0; i < row; ++i) mine.set(n * row + i, is_sum(name) ? 0 : std::nan(""));
        if (name.starts_with("grad_") && !is_sum(name)) {
            mine = rows_of(x);
            for (std::int64_t n = packed_ ? rows - 1 : 0; partition_.has_next && n < rows; ++n)
                for (std::int64_t i = 0; i < row; ++i) mine.set(n * row + i, std::nan(""));
        }
        initial_.emplace(name, std::move(mine));
    }
    for (const auto& [name, x] : whole.final_states) final_.emplace(name, rows_of(x));
    cu_seqlens_ = OwnedTensor(DType::I64, {static_cast<std::int64_t>(partition_.cu_seqlens.size())}, -1, false);
    for (std::size_t i = 0; i < partition_.cu_seqlens.size(); ++i)
        cu_seqlens_.set(static_cast<std::int64_t>(i), static_cast<double>(partition_.cu_seqlens[i]));
}

bool RankBuffers::is_sum(const std::string& state) const {
    return std::any_of(def_.inputs.begin(), def_.inputs.end(), [&](const ir::InputDecl& in) {
        return in.role != ir::Role::Input && state == "grad_" + in.name;
    });
}

/// A rank's tokens of a tensor of all.
TensorView RankBuffers::tokens_of(const OwnedTensor& x, std::int64_t factor) const {
    TensorView view = x.view();
    const std::size_t axis = packed_ ? 0 : 1;
    view.data = static_cast<std::byte*>(view.data) +
                partition_.begin * factor * view.strides[axis] * static_cast<std::int64_t>(size_in_bytes(x.dtype));
    view.shape[axis] = (partition_.end - partition_.begin) * factor;
    return view;
}

/// The sequences of a rank, of a tensor of all: a copy.
OwnedTensor RankBuffers::rows_of(const OwnedTensor& x) const {
    std::vector<std::int64_t> shape = x.shape;
    if (packed_) shape[0] = static_cast<std::int64_t>(partition_.sequences.size());
    OwnedTensor mine(DType::F32, shape, -1, false);
    const std::int64_t first = packed_ && shape[0] > 0 ? partition_.sequences[0] : 0;
    const std::int64_t row = x.shape[0] > 0 ? x.count() / x.shape[0] : 0;
    for (std::int64_t i = 0; i < mine.count(); ++i) mine.set(i, x.at(first * row + i));
    return mine;
}

Call RankBuffers::call() const {
    Call call;
    const ir::Definition& def = whole_.definition();
    for (const ir::InputDecl& in : def.inputs)
        if (in.role != ir::Role::Scalar)
            call.tensors[in.name] = in.role == ir::Role::Input
                                        ? tokens_of(whole_.inputs.at(in.name), in.type.shape[0].factor)
                                        : whole_.inputs.at(in.name).view();
    for (const ir::OutputDecl& out : def.outputs)
        call.tensors[out.name] = tokens_of(whole_.outputs.at(out.name), out.type.shape[0].factor);
    for (const auto& [name, x] : initial_) call.initial_states[name] = x.view();
    for (const auto& [name, x] : final_) call.final_states[name] = x.view();
    call.scalars = whole_.scalars;
    if (packed_) call.cu_seqlens = cu_seqlens_.view();
    return call;
}

/// A final state is that of the rank on which its sequence ends, the gradient of an initial one that of where it
/// begins, and sums are of all ranks.
void RankBuffers::merge() {
    for (const auto& [name, mine] : final_) {
        OwnedTensor& all = whole_.final_states.at(name);
        const std::int64_t rows = mine.shape[0], row = rows > 0 ? mine.count() / rows : 0,
                           first = packed_ && rows > 0 ? partition_.sequences[0] : 0;
        const bool gradient = name.starts_with("grad_");
        for (std::int64_t n = 0; n < rows; ++n) {
            const bool begins = !partition_.has_prev || (packed_ && n > 0),
                       ends = !partition_.has_next || (packed_ && n + 1 < rows);
            if (!is_sum(name) && !(gradient ? begins : ends)) continue;
            for (std::int64_t i = 0; i < row; ++i)
                all.set((first + n) * row + i,
                        mine.at(n * row + i) + (is_sum(name) ? all.at((first + n) * row + i) : 0));
        }
    }
}

}  // namespace forge::tests
