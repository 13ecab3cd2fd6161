# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes a small llama model with random weights in a folder, three times: as model.gguf, as
split-0000N-of-00003.gguf, and in the folder safetensors as two shards with their index."""

import json
import pathlib
import sys

import gguf
import numpy
import safetensors.numpy

VOCAB, EMBED, HIDDEN, HEADS, LAYERS, CONTEXT = 1024, 512, 1408, 8, 4, 256


def tensors() -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(1)

    def weights(*shape: int) -> numpy.ndarray:
        return (random.standard_normal(shape) / shape[-1] ** 0.5).astype(numpy.float32)

    ones = numpy.ones(EMBED, numpy.float32)
    all_of_them = {"token_embd.weight": weights(VOCAB, EMBED), "output.weight": weights(VOCAB, EMBED),
                   "output_norm.weight": ones}
    for layer in range(LAYERS):
        of = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            all_of_them[f"{of}{name}.weight"] = weights(EMBED, EMBED)
        for name in ("ffn_gate", "ffn_up"):
            all_of_them[f"{of}{name}.weight"] = weights(HIDDEN, EMBED)
        all_of_them[f"{of}ffn_down.weight"] = weights(EMBED, HIDDEN)
        all_of_them[f"{of}attn_norm.weight"] = ones
        all_of_them[f"{of}ffn_norm.weight"] = ones
    return all_of_them


def write_gguf(path: pathlib.Path, content: dict[str, numpy.ndarray], most: int = 0) -> None:
    """In one file, or with at most so many tensors in each."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=most)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBED)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBED // HEADS)
    writer.add_tokenizer_model("llama")
    control = ["<unk>", "<s>", "</s>"]
    data = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [f"w{number}" for number in range(VOCAB - len(control) - len(data))]
    writer.add_token_list(control + data + words)
    writer.add_token_scores([0.0] * VOCAB)
    kind = gguf.TokenType
    writer.add_token_types([kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * len(data),
                            *[kind.NORMAL] * len(words)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in content.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_shards(folder: pathlib.Path, content: dict[str, numpy.ndarray]) -> None:
    folder.mkdir(exist_ok=True)
    names = sorted(content)
    half = len(names) // 2
    index = {}
    for number, part in enumerate((names[:half], names[half:]), 1):
        shard = f"model-{number:05}-of-00002.safetensors"
        safetensors.numpy.save_file({name: content[name] for name in part}, folder / shard)
        index.update(dict.fromkeys(part, shard))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text('{"model_type": "llama"}')


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    made = tensors()
    write_gguf(root / "model.gguf", made)
    write_gguf(root / "split.gguf", made, 15)
    write_shards(root / "safetensors", made)
