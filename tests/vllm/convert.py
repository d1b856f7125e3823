"""convert.py GGUF FOLDER: the model of the tests as vLLM reads it, a folder of Hugging Face's form.

vLLM reads no GGUF by itself. transformers does, but refuses to save what it read in that way: the weights go into a fresh
model of the same configuration first. They are rounded to BF16, as the embedded engine has them too.
"""

import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM


def convert(gguf: pathlib.Path, folder: pathlib.Path) -> None:
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    fields = source.config.to_dict()
    # What only says where it came from.
    for name in ("quantization_config", "_name_or_path"):
        fields.pop(name, None)
    fields["dtype"] = "bfloat16"
    model = LlamaForCausalLM(LlamaConfig(**fields))
    model.load_state_dict(source.state_dict(), strict=False)
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
