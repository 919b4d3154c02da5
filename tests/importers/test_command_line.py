"""The model in a captured command line, and never anything else of it."""

from __future__ import annotations

import pytest

from tracebook.importers.command_line import model_of


def hint(*words, process="PROCESS_0:"):
    rows = [(f"{process}COMMAND", words[0])]
    rows += [(f"{process}ARGUMENT_{at}", word) for at, word in enumerate(words[1:])]
    return model_of(rows)


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (("vllm", "serve", "org/model-27B", "--port", "1"), "org/model-27B"),
        (("/opt/venv/bin/vllm", "serve", "/models/m-27B"), "/models/m-27B"),
        (("python3", "/venv/bin/vllm", "serve", "org/m"), "org/m"),
        (("vllm", "serve", "--port", "8000", "--model", "org/m"), "org/m"),
        (("vllm", "bench", "latency", "--model=org/m"), "org/m"),
        (("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/m"), "org/m"),
        (("python", "-m", "sglang.launch_server", "--model-path", "org/m"), "org/m"),
        (("trtllm-serve", "org/m", "--host", "h"), "org/m"),
        (("trtllm-serve", "serve", "org/m"), "org/m"),
        (("./llama-server", "-m", "/models/m-Q4.gguf", "-c", "4096"), "/models/m-Q4.gguf"),
        (("bash", "-c", "TOKEN=x vllm serve org/m --port 1"), "org/m"),
        (("bash", "-lc", "vllm serve 'org/m'"), "org/m"),
    ],
)
def test_the_model_is_found(words, model):
    assert hint(*words) == model


@pytest.mark.parametrize(
    "words",
    [
        ("python", "-m", "mymodule"),
        ("vllm", "serve", "--port", "8000"),
        ("vllm", "serve"),
        ("vllm", "bench", "serve", "--host", "h"),
        ("./server", "--model"),
        ("./server", "--model", "--api-key", "secret"),
        ("./server", "--model", "https://user:token@host/m"),
        ("./server", "--model", "a\x1b[31m"),
        ("./server", "--model", "x" * 5000),
        ("./server", "--api-key", "secret", "--user", "me"),
        ("bash", "-c", "unbalanced 'quote vllm serve org/m"),
    ],
)
def test_nothing_else_is_taken_for_a_model(words):
    assert hint(*words) is None


def test_arguments_are_put_in_order_by_their_numbers():
    words = ["vllm", "serve", *(f"--o{i}" for i in range(9)), "--model", "org/m"]
    rows = [("PROCESS_0:COMMAND", words[0])]
    rows += [(f"PROCESS_0:ARGUMENT_{at}", word) for at, word in enumerate(words[1:])]
    assert model_of(sorted(rows)) == "org/m"


def test_the_first_process_that_names_one_counts():
    rows = [
        ("PROCESS_1:COMMAND", "vllm"),
        ("PROCESS_1:ARGUMENT_0", "serve"),
        ("PROCESS_1:ARGUMENT_1", "org/m"),
        ("PROCESS_0:COMMAND", "sh"),
    ]
    assert model_of(rows) == "org/m"


def test_environment_rows_are_never_looked_at():
    rows = [
        ("PROCESS_0:ENVIRONMENT_VARIABLE:COMMAND", "vllm serve org/secret"),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "X=vllm serve org/secret"),
    ]
    assert model_of(rows) is None
