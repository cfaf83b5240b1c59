#include "demo_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/parallel.h"
#include "check/random.h"
#include "interp/recurrence.h"

namespace forge::tools {
namespace {

constexpr int kBytes = 256;
constexpr std::int64_t kBlock = 512;  ///< positions that one thread scores at a time
using Scores = std::array<float, kBytes>;

/// A unit vector of signs, from a hash.
std::array<float, kSize> signs(std::uint64_t hash) {
    std::array<float, kSize> result{};
    const float size = 1 / std::sqrt(static_cast<float>(kSize));
    for (std::size_t i = 0; i < kSize; ++i) {
        const std::uint64_t word = check::mix(hash + i / 64);
        result[i] = ((word >> (i % 64)) & 1U) != 0 ? size : -size;
    }
    return result;
}

/// The `order` bytes before position t, as a number without structure. Before the text there are no bytes.
std::uint64_t context_hash(const std::string& text, std::int64_t t, std::int64_t order, std::uint64_t seed) {
    std::uint64_t hash = check::mix(check::mix(seed, "keys") + static_cast<std::uint64_t>(order));
    for (std::int64_t i = t - order; i < t; ++i)
        hash = check::mix(hash ^ (i < 0 ? kBytes : static_cast<std::uint8_t>(text[static_cast<std::size_t>(i)])));
    return hash;
}

/// Bits that a softmax over the scores needs for the byte that came.
double bits(const Scores& scores, std::uint8_t came, double temperature) {
    const float largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const float s : scores) sum += std::exp(static_cast<float>(temperature) * (s - largest));
    return std::log2(sum) - temperature * static_cast<double>(scores[came] - largest) / std::log(2.0);
}

/// The temperature with the fewest bits, by golden section on its logarithm.
template <class Fn>
double fit_temperature(Fn&& mean_bits) {
    constexpr double kGolden = 0.6180339887498949;
    constexpr int kSteps = 20;
    double low = std::log(0.1), high = std::log(1000.0);
    double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
    double at_a = mean_bits(std::exp(a)), at_b = mean_bits(std::exp(b));
    for (int i = 0; i < kSteps; ++i) {
        if (at_a < at_b) {
            high = b, b = a, at_b = at_a;
            a = high - kGolden * (high - low), at_a = mean_bits(std::exp(a));
        } else {
            low = a, a = b, at_a = at_b;
            b = low + kGolden * (high - low), at_b = mean_bits(std::exp(b));
        }
    }
    return std::exp((low + high) / 2);
}

double mean(const std::vector<double>& x, std::int64_t first) {
    double sum = 0;
    for (std::size_t i = static_cast<std::size_t>(first); i < x.size(); ++i) sum += x[i];
    return sum / static_cast<double>(x.size() - static_cast<std::size_t>(first));
}

void for_blocks(std::int64_t count, const std::function<void(std::int64_t)>& body) {
    check::parallel_for((count + kBlock - 1) / kBlock, [&](std::int64_t block) {
        for (std::int64_t t = block * kBlock; t < std::min(count, (block + 1) * kBlock); ++t) body(t);
    });
}

}  // namespace

DemoTask::DemoTask(std::string text, std::uint64_t seed, DType dtype)
    : text_(std::move(text)),
      dtype_(dtype),
      keys_(dtype, {1, tokens() + 1, kHeads, kSize}, -1, false),
      values_(dtype, {1, tokens(), kHeads, kSize}, -1, false),
      codes_(kSize * kBytes) {
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
        const auto code = signs(check::mix(check::mix(seed, "codes") + byte));
        for (std::size_t i = 0; i < kSize; ++i) codes_[i * kBytes + byte] = code[i];
    }
    for_blocks(tokens() + 1, [&](std::int64_t t) {
        for (std::int64_t h = 0; h < kHeads; ++h) {
            const auto key = signs(context_hash(text_, t, h + 1, seed));
            for (std::int64_t i = 0; i < kSize; ++i)
                keys_.set((t * kHeads + h) * kSize + i, key[static_cast<std::size_t>(i)]);
            if (t == tokens()) continue;
            const std::size_t byte = static_cast<std::uint8_t>(text_[static_cast<std::size_t>(t)]);
            for (std::int64_t i = 0; i < kSize; ++i)
                values_.set((t * kHeads + h) * kSize + i, codes_[static_cast<std::size_t>(i) * kBytes + byte]);
        }
    });
}

std::map<std::string, check::OwnedTensor> DemoTask::gates(const ir::Definition& def, const DemoVariant& variant) const {
    std::map<std::string, check::OwnedTensor> result;
    for (const ir::InputDecl& in : def.inputs) {
        if (in.role == ir::Role::Scalar || in.name == "q" || in.name == "k" || in.name == "v") continue;
        const bool per_token = in.role == ir::Role::Input;
        const std::int64_t rows = per_token ? tokens() : 1, last = static_cast<std::int64_t>(in.type.shape.size()) - 1;
        const std::int64_t channels = last > (per_token ? 1 : 0) ? kSize : 1;
        std::vector<std::int64_t> shape = {kHeads};
        if (per_token) shape = {1, tokens(), kHeads};
        if (channels > 1) shape.push_back(channels);
        check::OwnedTensor x(is_half(in.type.dtype) ? dtype_ : in.type.dtype, shape, -1, false);
        for (std::int64_t i = 0; i < rows * kHeads * channels; ++i) {
            const auto head = static_cast<std::size_t>(i / channels % kHeads);
            const double along =
                channels > 1 ? 2.0 * static_cast<double>(i % channels) / static_cast<double>(channels - 1) - 1 : 0;
            const double memory = variant.memory[head] * std::pow(variant.spread, along);
            const double gate = variant.memory[head] == kForever ? 0 : -1 / memory;
            x.set(i, in.name == "beta" ? variant.beta[head] : gate);
        }
        result.emplace(in.name, std::move(x));
    }
    return result;
}

check::OwnedTensor DemoTask::output() const { return {dtype_, {1, tokens(), kHeads, kSize}, -1, false}; }

Call DemoTask::call(const ir::Definition& def, const std::map<std::string, check::OwnedTensor>& gates,
                    const check::OwnedTensor& output) const {
    Call call;
    for (const ir::InputDecl& in : def.inputs)
        if (in.role == ir::Role::Scalar) call.scalars[in.name] = 1;
    for (const auto& [name, x] : gates) call.tensors[name] = x.view();
    TensorView keys = keys_.view();
    keys.shape[1] = tokens();
    TensorView queries = keys;
    queries.data =
        static_cast<std::byte*>(keys.data) + static_cast<std::size_t>(keys.strides[1]) * size_in_bytes(dtype_);
    call.tensors["k"] = keys;
    call.tensors["q"] = queries;
    call.tensors["v"] = values_.view();
    call.tensors[def.outputs.front().name] = output.view();
    return call;
}

/// Cosines of the weighted read-out at position t with the 256 codes. Dividing by its length is what the norm after
/// linear attention does in every model; without it a memory that only adds would need another temperature every page.
void DemoTask::read_out(const check::OwnedTensor& output, std::int64_t t, float* scores) const {
    std::fill_n(scores, kBytes, 0.0F);
    double squares = 0;
    for (std::int64_t i = 0; i < kSize; ++i) {
        double sum = 0;
        for (std::int64_t h = 0; h < kHeads; ++h)
            sum += kHeadWeights[static_cast<std::size_t>(h)] * output.at((t * kHeads + h) * kSize + i);
        squares += sum * sum;
        const float* code = &codes_[static_cast<std::size_t>(i) * kBytes];
        for (int byte = 0; byte < kBytes; ++byte) scores[byte] += static_cast<float>(sum) * code[byte];
    }
    const auto factor = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
    for (int byte = 0; byte < kBytes; ++byte) scores[byte] *= factor;
}

Score DemoTask::score(const check::OwnedTensor& output) const {
    const std::int64_t count = tokens() - 1, fitted = std::max<std::int64_t>(count / 10, 1);
    const auto next = [&](std::int64_t t) { return static_cast<std::uint8_t>(text_[static_cast<std::size_t>(t) + 1]); };
    std::vector<Scores> first(static_cast<std::size_t>(fitted));
    for_blocks(fitted, [&](std::int64_t t) { read_out(output, t, first[static_cast<std::size_t>(t)].data()); });

    Score result;
    std::vector<double> cost(static_cast<std::size_t>(fitted));
    result.temperature = fit_temperature([&](double temperature) {
        for_blocks(fitted, [&](std::int64_t t) {
            cost[static_cast<std::size_t>(t)] = bits(first[static_cast<std::size_t>(t)], next(t), temperature);
        });
        return mean(cost, 0);
    });

    cost.resize(static_cast<std::size_t>(count));
    result.guesses.resize(static_cast<std::size_t>(count));
    for_blocks(count, [&](std::int64_t t) {
        Scores scores;
        read_out(output, t, scores.data());
        result.guesses[static_cast<std::size_t>(t)] =
            static_cast<std::uint8_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
        cost[static_cast<std::size_t>(t)] = bits(scores, next(t), result.temperature);
    });
    result.bits_per_byte = mean(cost, count > fitted ? fitted : 0);
    std::int64_t hits = 0;
    for (std::int64_t t = 0; t < count; ++t) hits += result.guesses[static_cast<std::size_t>(t)] == next(t) ? 1 : 0;
    result.accuracy = static_cast<double>(hits) / static_cast<double>(count);
    return result;
}

interp::Sequence DemoTask::sequence(const ir::Definition& def, const std::map<std::string, check::OwnedTensor>& gates,
                                    std::int64_t tokens, std::int64_t head) const {
    const auto rows = [&](const check::OwnedTensor& x, std::int64_t first, std::int64_t count, std::int64_t width,
                          bool scalar_rows) {
        interp::Value value;
        value.shape = {count};
        if (!scalar_rows) value.shape.push_back(width);
        for (std::int64_t t = first; t < first + count; ++t)
            for (std::int64_t i = 0; i < width; ++i) value.data.push_back(x.at((t * kHeads + head) * width + i));
        return value;
    };
    interp::Sequence result;
    result.tokens = tokens;
    result.inputs = {{"k", rows(keys_, 0, tokens, kSize, false)},
                     {"q", rows(keys_, 1, tokens, kSize, false)},
                     {"v", rows(values_, 0, tokens, kSize, false)}};
    for (const ir::InputDecl& in : def.inputs) {
        if (in.role == ir::Role::Scalar) result.inputs[in.name] = interp::scalar(1);
        if (!gates.contains(in.name)) continue;
        const check::OwnedTensor& x = gates.at(in.name);
        const bool per_token = in.role == ir::Role::Input;
        const bool vector = x.shape.size() > (per_token ? 3U : 1U);
        interp::Value value = rows(x, 0, per_token ? tokens : 1, vector ? kSize : 1, !vector);
        if (!per_token) value.shape.erase(value.shape.begin());
        result.inputs[in.name] = std::move(value);
    }
    return result;
}

double DemoTask::deviation(const ir::Definition& def, const std::map<std::string, check::OwnedTensor>& gates,
                           const check::OwnedTensor& output, std::int64_t count) const {
    std::array<double, kHeads> errors{}, squares{};
    const std::string name = def.outputs.front().name;
    check::parallel_for(kHeads, [&](std::int64_t head) {
        const auto h = static_cast<std::size_t>(head);
        const interp::Outcome outcome =
            interp::run_steps(def, sequence(def, gates, count, head), {{"K", kSize}, {"V", kSize}});
        const std::vector<double>& want = outcome.outputs.at(name).data;
        for (std::size_t i = 0; i < want.size(); ++i) {
            const auto t = static_cast<std::int64_t>(i) / kSize, channel = static_cast<std::int64_t>(i) % kSize;
            const double difference = output.at((t * kHeads + head) * kSize + channel) - want[i];
            errors[h] += difference * difference;
            squares[h] += want[i] * want[i];
        }
    });
    double error = 0, square = 0;
    for (std::size_t h = 0; h < kHeads; ++h) error += errors[h], square += squares[h];
    return std::sqrt(error / std::max(square, 1e-300));
}

}  // namespace forge::tools
