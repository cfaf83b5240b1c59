#include "variants/variants.h"

#include <algorithm>

namespace forge::variants {

const std::vector<Entry>& all() {
    static const std::vector<Entry> kAll = {
        {"linear_attention", "S = S + k vᵀ", "Katharopoulos et al. 2020, arXiv:2006.16236", linear_attention},
        {"retnet", "S = γ S + k vᵀ, constant γ per head", "Sun et al. 2023, arXiv:2307.08621", retnet},
        {"lightning_attention", "S = e^-slope S + k vᵀ, constant slope per head", "Qin et al. 2024, arXiv:2401.04658",
         lightning_attention},
        {"scalar_gla", "S = e^g S + k vᵀ, scalar g (Mamba-2)", "Dao and Gu 2024, arXiv:2405.21060", scalar_gla},
        {"gla", "S = diag(e^g) S + k vᵀ", "Yang et al. 2023, arXiv:2312.06635", gla},
        {"hgrn2", "S = diag(e^g) S + (1 - e^g) vᵀ", "Qin et al. 2024, arXiv:2404.07904", hgrn2},
        {"rwkv6", "o = (S + (u⊙k) vᵀ)ᵀ q, then S = diag(e^g) S + k vᵀ", "Peng et al. 2024, arXiv:2404.05892", rwkv6},
        {"hgrn", "h = e^g ⊙ h + (1 - e^g) ⊙ v, o = h ⊙ q", "Qin et al. 2023, arXiv:2311.04823", hgrn},
        {"hawk", "h = a ⊙ h + sqrt(1 - a²) ⊙ σ(i) ⊙ x, a = e^(-8 softplus(Λ) σ(r))", "De et al. 2024, arXiv:2402.19427",
         hawk},
        {"delta_net", "S = (I - β k kᵀ) S + β k vᵀ", "Yang et al. 2024, arXiv:2406.06484", delta_net},
        {"gated_delta_net", "S = e^g (I - β k kᵀ) S + β k vᵀ", "Yang et al. 2024, arXiv:2412.06464", gated_delta_net},
        {"delta_product", "S = e^g S, then twice S += β k (v - Sᵀ k)ᵀ", "Siems et al. 2025, arXiv:2502.10297",
         delta_product},
        {"kda", "S = diag(e^g) S, then S += β k (v - Sᵀ k)ᵀ", "Kimi Team 2025, arXiv:2510.26692", kda},
        {"mamba3", "S = e^g Rᵀ (S + (1 - λ) Δ Σ k' v'ᵀ) + λ Δ Σ k vᵀ, R turns by θ, k' of the token before",
         "Lahoti et al. 2026, arXiv:2603.15569", mamba3},
    };
    return kAll;
}

const std::vector<Entry>& objectives() {
    static const std::vector<Entry> kObjectives = {
        {"preconditioned_delta", "z = e^g z + k², S = e^g S, S += β k/(1 + z) (v - Sᵀ k)ᵀ",
         "Duchi et al. 2011; Wang et al. 2025, arXiv:2501.12352", preconditioned_delta},
        {"precision_weighted", "Λ = e^g Λ + p k², S = e^g S + p k vᵀ, o = Sᵀ (q / (1 + Λ))",
         "Wang et al. 2025, arXiv:2501.12352", precision_weighted},
        {"temporal_difference", "S += β k' (v + γ Sᵀ k - Sᵀ k')ᵀ, k' the key before",
         "Wang et al. 2024, arXiv:2405.13861", temporal_difference},
        {"contrastive", "S += β/64 k (v - Bᵀ k)ᵀ, B the state before the chunk", "Sun et al. 2024, arXiv:2407.04620",
         contrastive},
        {"spectral", "S = e^g R S Pᵀ + k vᵀ, R and P rotations", "Orvieto et al. 2023, arXiv:2303.06349", spectral},
        {"momentum_delta", "Y = e^m Y + (1 - e^m) β k (v - e^g Sᵀ k)ᵀ, S = e^g S + Y",
         "Behrouz et al. 2024, arXiv:2501.00663", momentum_delta},
    };
    return kObjectives;
}

const std::vector<Entry>& listed() {
    static const std::vector<Entry> kListed = [] {
        std::vector<Entry> entries = all();
        entries.insert(entries.end(), objectives().begin(), objectives().end());
        return entries;
    }();
    return kListed;
}

const Entry* find(const std::string& name) {
    const auto it = std::find_if(listed().begin(), listed().end(), [&](const Entry& e) { return e.name == name; });
    return it == listed().end() ? nullptr : &*it;
}

}  // namespace forge::variants
