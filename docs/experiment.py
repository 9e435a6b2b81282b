# %% [markdown]
# # The experiment, step by step
#
# What prefix caching gains and what it costs, measured here and now with a model that is small enough for a minute.
# [Prefix caching](prefix-caching.md) explains the same with larger models. This notebook is made from `experiment.py`
# beside it: `python -m cache_bench.experiment --notebook`. Whole, and resumable, the experiment runs as
# `python -m cache_bench.experiment MODEL`.

# %%
import os
import tempfile
from pathlib import Path

from IPython.display import Image, Markdown
from rich.console import Console

from cache_bench.experiment import figures, page
from cache_bench.experiment.answers import answer
from cache_bench.experiment.kv_size import FLOAT16, MIB, named
from cache_bench.experiment.options import Options
from cache_bench.experiment.plan import plan
from cache_bench.experiment.run import run

model = os.environ.get("EXPERIMENT_MODEL", "llama-4m")
scale = float(os.environ.get("EXPERIMENT_SCALE", "1"))  # of all lengths: a test makes them shorter


def scaled(tokens: int) -> int:
    return max(1, round(scale * tokens))


# %% [markdown]
# ## What is asked
#
# Prompts that begin with the same system prompt and end differently; some requests that share more and more of one
# prompt; a series of requests from an empty cache on; a few long answers.

# %%
options = Options(
    model,
    prompts=40,
    prefixes=(scaled(50), scaled(100), scaled(200), scaled(500)),
    suffixes=(scaled(20), scaled(50)),
    share_tokens=scaled(256),
    shares=(0, scaled(16), scaled(32), scaled(64), scaled(128), scaled(192)),
    sharing_prefix=scaled(200),
    sharing=scaled(20) + 1,
    long_output=scaled(200) + 1,
)
steps = plan(options)
steps[0]

# %% [markdown]
# Each step is one prompt. Its arms answer it in random order: *cold* computes everything, *warm* goes through the
# cache, *floor* computes the suffix alone over KV that lies in place. It is asserted that warm reused exactly the
# prefix, cold nothing, and that all arms agree. The first row of what was measured:

# %%
folder = Path(tempfile.mkdtemp())
results = run(options, folder, Console(quiet=True))
found = answer(results)
results.readings[0]

# %% [markdown]
# A second run finds everything done. One that was stopped would go on where it was.

# %%
assert run(options, folder, Console(quiet=True)).readings == results.readings
len(results.readings)

# %% [markdown]
# ## Time to first token

# %%
Image(figures.png(figures.ttft(results, found)))

# %%
Markdown(page.BLOCKS["ttft"]([(results, found)]))

# %% [markdown]
# The ratio of FLOPs is what arithmetic promises; the floor is what can be had.

# %%
Image(figures.png(figures.speedup(results, found)))

# %%
Image(figures.png(figures.saved(results, found)))

# %% [markdown]
# ## When it pays

# %%
Markdown(page.BLOCKS["break-even"]([(results, found)]))

# %%
Image(figures.png(figures.break_even(results, found)))

# %%
Image(figures.png(figures.sharing(results, found)))

# %% [markdown]
# ## From end to end
#
# The longer the answer, the less there is to save. The time per output token is not the prefix cache's business.

# %%
Image(figures.png(figures.output(results, found)))

# %%
Image(figures.png(figures.tpot(results, found)))

# %% [markdown]
# ## Memory

# %%
Image(figures.png(figures.memory(results, found)))

# %% [markdown]
# For a model of your own, the formula needs four numbers of its configuration.

# %%
llama = named("Llama-3-8B")
f"{llama.formula} = {llama.numbers:,} a token; 1,000 tokens in float16: {llama.nbytes(1_000, FLOAT16) / MIB:.0f} MiB"

# %%
Markdown(page.kv_table())
