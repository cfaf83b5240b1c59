namespace forge::cuda {
template <int W>
FORGE_DEVICE Vec<W> softsign(const Vec<W>& a) {
    return each(a, [](float x) { return x / (1.0f + fabsf(x)); });
}
}  // namespace forge::cuda
