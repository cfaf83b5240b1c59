"""forge.integrations.transformers: models of transformers, tiny and random, generate the same tokens on Forge's kernels
as on their own. With FORGE_TEST_DEVICE=cuda on a GPU."""

import importlib
import logging
import os
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import forge  # noqa: E402
from forge.integrations import transformers as patching  # noqa: E402

if not hasattr(transformers.integrations, "use_kernel_func_from_hub_with_fallback"):
    pytest.skip("models of this transformers have no functions for their kernels", allow_module_level=True)

DEVICE = os.environ.get("FORGE_TEST_DEVICE", "cpu")
VOCABULARY = 97
COMMON = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=2,
    head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=None, initializer_range=0.2,
)  # fmt: skip
DELTA = dict(
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
    linear_conv_kernel_dim=4, layer_types=["linear_attention", "full_attention"], num_hidden_layers=2,
)  # fmt: skip
EXPERTS = dict(
    num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16,
)  # fmt: skip
KIMI = dict(
    linear_num_heads=2, linear_head_dim=16, layer_types=["linear_attention", "full_attention"], num_hidden_layers=2,
    mlp_layer_types=["dense", "dense"], kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16,
    num_local_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
)  # fmt: skip
MAMBA = dict(mamba_n_heads=4, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=2, mamba_expand=2, mamba_d_conv=4)

#: Class: the module of transformers.models, and its configuration.
MODELS = {
    "Qwen3NextForCausalLM": ("qwen3_next", COMMON | DELTA | EXPERTS),
    "Qwen3_5ForCausalLM": ("qwen3_5", COMMON | DELTA),
    "OlmoHybridForCausalLM": ("olmo_hybrid", COMMON | DELTA | dict(linear_num_key_heads=4)),
    "KimiLinearForCausalLM": ("kimi_linear", COMMON | KIMI),
    "Mamba2ForCausalLM": ("mamba2", dict(
        vocab_size=VOCABULARY, hidden_size=32, num_heads=4, head_dim=16, state_size=16, n_groups=2, expand=2,
        num_hidden_layers=2, chunk_size=32, initializer_range=0.2, pad_token_id=0, bos_token_id=1, eos_token_id=None)),
    "BambaForCausalLM": ("bamba", COMMON | MAMBA | dict(num_hidden_layers=2, attn_layer_indices=[1])),
    "FalconH1ForCausalLM": ("falcon_h1", COMMON | MAMBA | dict(num_hidden_layers=2, mamba_d_ssm=64)),
    "Zamba2ForCausalLM": ("zamba2", dict(
        vocab_size=VOCABULARY, hidden_size=32, num_attention_heads=2, intermediate_size=32, n_mamba_heads=4,
        mamba_ngroups=2, mamba_d_state=16, num_hidden_layers=2, layers_block_type=["linear_attention", "hybrid"],
        initializer_range=0.2, eos_token_id=None)),
    "GraniteMoeHybridForCausalLM": ("granitemoehybrid", COMMON | MAMBA | dict(
        num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], num_local_experts=2,
        num_experts_per_tok=1, shared_intermediate_size=16)),
    "NemotronHForCausalLM": ("nemotron_h", COMMON | dict(
        mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=16, n_groups=2, chunk_size=32,
        layers_block_type=["linear_attention", "full_attention", "mlp"])),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def own_kernels():
    """The library's own path is PyTorch's here: flash-linear-attention, where it is installed, needs a GPU."""
    hidden = {name: sys.modules.get(name) for name in ("fla", "mamba_ssm", "causal_conv1d")}
    sys.modules.update(dict.fromkeys(hidden))
    yield
    for name, module in hidden.items():
        if module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = module


def model_of(name: str):
    home, options = MODELS[name]
    module = importlib.import_module(f"transformers.models.{home}.modeling_{home}")
    kind = getattr(module, name)
    torch.manual_seed(0)
    return kind(kind.config_class(**options)).eval().to(DEVICE)


def generated(model, ids, **options):
    with torch.no_grad():
        result = model.generate(
            ids, max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True, **options
        )
    return result.sequences, torch.stack(result.logits)


@pytest.mark.parametrize("name", MODELS)
def test_generates_the_same(name, caplog):
    model = model_of(name)
    ids = torch.randint(2, VOCABULARY, (2, 70), device=DEVICE)
    tokens, logits = generated(model, ids)
    with caplog.at_level(logging.INFO, "forge"), patching.patched():
        ours, our_logits = generated(model, ids)
    assert [r.getMessage() for r in caplog.records if r.name == "forge"][1:] == []  # nothing was left to transformers
    assert torch.equal(ours, tokens)
    assert (our_logits - logits).abs().max() <= 1e-4 * logits.abs().max()
    assert not torch.equal(our_logits, logits), "the same bits: Forge's kernels did not run"


def test_bf16_is_as_close_as_rounding():
    model = model_of("Qwen3NextForCausalLM")
    ids = torch.randint(2, VOCABULARY, (2, 70), device=DEVICE)
    with torch.no_grad():
        exact = model(ids).logits
        model.bfloat16()
        own = model(ids).logits.float()
        with patching.patched():
            ours = model(ids).logits.float()
    rounding = (own - exact).square().mean().sqrt()
    assert (ours - exact).square().mean().sqrt() <= 1.5 * rounding


@pytest.mark.parametrize("name", ["Qwen3NextForCausalLM", "Mamba2ForCausalLM"])
def test_trains_the_same(name):
    model = model_of(name).train()
    ids = torch.randint(2, VOCABULARY, (2, 70), device=DEVICE)

    def gradients():
        model.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    own = gradients()
    with patching.patched():
        ours = gradients()
    assert own.keys() == ours.keys() and any("dt_bias" in n for n in own)
    for n, grad in own.items():
        assert (ours[n] - grad).abs().max() <= 1e-4 * grad.abs().max() + 1e-7, n


def test_packed_sequences_stay_apart():
    """Which the library's own path refuses."""
    from transformers.models.qwen3_next import modeling_qwen3_next as home

    torch.manual_seed(0)
    q, k = (torch.randn(1, 50, 2, 16, device=DEVICE) for _ in range(2))
    v, g, beta = torch.randn(1, 50, 4, 16), -torch.rand(1, 50, 4), torch.rand(1, 50, 4)
    v, g, beta = (x.to(DEVICE) for x in (v, g, beta))
    offsets = torch.tensor([0, 20, 50], device=DEVICE)
    with patching.patched():
        o, _ = home.torch_chunk_gated_delta_rule(
            q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True, cu_seqlens=offsets
        )
    apart = [
        home.torch_chunk_gated_delta_rule(*(x[:, a:b] for x in (q, k, v, g, beta)), use_qk_l2norm_in_kernel=True)[0]
        for a, b in ((0, 20), (20, 50))
    ]
    assert torch.allclose(o, torch.cat(apart, 1), atol=1e-5)


def test_what_was_there_comes_back_and_what_comes_later_is_forges():
    from transformers.models.mamba2 import modeling_mamba2 as home

    late = "transformers.models.bailing_hybrid.modeling_bailing_hybrid"
    assert late not in sys.modules
    before = dict(vars(home))
    decorator = transformers.integrations.use_kernel_func_from_hub_with_fallback
    names = patching.patch()
    assert "mamba2_chunk_scan" in names and home.mamba2_chunk_scan is not before["mamba2_chunk_scan"]
    assert home.causal_conv1d_fn is before["causal_conv1d_fn"]
    there = dict(vars(home))
    assert patching.patch() == names and dict(vars(home)) == there  # twice is once
    imported = importlib.import_module(late)
    torch.manual_seed(0)
    q, k, v, beta = (torch.randn(1, 5, 2, 16, device=DEVICE) for _ in range(4))
    call = lambda: imported.chunk_kimi_delta_attention(q, k, v, -v.abs(), beta[..., 0].sigmoid())[0]  # noqa: E731
    ours = call()
    patching.unpatch()
    assert dict(vars(home)) == before
    assert transformers.integrations.use_kernel_func_from_hub_with_fallback is decorator
    own = call()
    assert torch.allclose(ours, own, atol=1e-5) and not torch.equal(ours, own)


def test_what_is_refused_goes_to_transformers(caplog, monkeypatch):
    from transformers.models.mamba2 import modeling_mamba2 as home

    monkeypatch.setattr("forge._patch.said", set())
    torch.manual_seed(0)
    state, x, dt = torch.randn(1, 2, 8, 8), torch.randn(1, 2, 8), torch.rand(1, 2, 8)
    A, B = -torch.rand(2, 1, 1).expand(2, 8, 8), torch.randn(1, 1, 8)
    wanted = home.mamba2_selective_state_update(state.clone(), x, dt, A, B, B)  # time steps of every channel
    with caplog.at_level(logging.INFO, "forge"), patching.patched():
        o = home.mamba2_selective_state_update(state.clone(), x, dt, A, B, B)
    assert torch.equal(o, wanted)
    assert "expected one number per head, expanded" in caplog.records[-1].getMessage()


def test_an_old_transformers_is_refused(monkeypatch):
    monkeypatch.delattr("transformers.integrations.hub_kernels.use_kernel_func_from_hub_with_fallback")
    with pytest.raises(ImportError, match="pip install -U transformers"):
        patching.patch()


def test_names():
    with pytest.raises(AttributeError, match="transformers"):
        forge.integrations.transformer  # noqa: B018
