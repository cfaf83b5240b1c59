namespace forge::cpu {
FORGE_INLINE vec softsign(vec x) { return x / (1.0f + abs(x)); }
}  // namespace forge::cpu
