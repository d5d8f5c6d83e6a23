#!/bin/sh
# Measures this folder's project as it changes, and packs its results: ./measure.sh EMPTY_FOLDER
#
# Sixteen nights, the first six before `smooth` became a running sum; a seventeenth, judged by ten of
# them; and two versions of the code in turns.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
cp -r "$here"/*.py "$here"/*.ini "$here"/benchmarks "$here"/configs .
printf 'results/\n__pycache__/\n' > .gitignore
git init --quiet --initial-branch=main

commit() {
  git add --all
  git -c user.name=dev -c user.email=dev@example.org commit --quiet --message="$1"
}
night() {
  pytest -q --tag=night "$@"
}

commit "Filters and classifiers"
for _ in 1 2 3 4 5 6; do night; done
sed -i 's|return np.convolve.*|sums = np.cumsum(np.concatenate(([0.0], signal)))\n    return (sums[width:] - sums[:-width]) / width|' signals.py
commit "Smooth by a running sum"
for _ in 1 2 3 4 5 6 7 8 9 10; do night; done
gpubench baseline set main $(ls -d results/nightly/*/ | tail -n 10) --branch=main --force --reason="ten nights"
sed -i 's|middle = signal\[1:-1\]|signal = np.abs(signal)\n    middle = signal[1:-1]|' signals.py
commit "Find peaks of either sign"
night --baseline=main --gate || true

sed -i 's|^    sums =|    signal = np.pad(signal, width // 2, mode="reflect")\n    sums =|' signals.py
sed -i 's|np.hanning(len(signal))|WINDOW|; s|^def smooth|WINDOW = np.hanning(65_536)\n\n\n&|' signals.py
sed -i 's|functional.relu|functional.gelu|' classifier.py
gpubench ab --base HEAD --pairs=10 -- benchmarks --profile || true

# Without what pages do not show: traces, the journals of launches but for the last pair before each
# look, and the rounds of the first nights.
find results/ab -name metrics.jsonl ! -path '*/01[12]-*' ! -path '*/02[12]-*' -delete
sed -i '/"event": *"benchmark"/d' $(ls -d results/nightly/*/metrics.jsonl | head -n 6)
sed -i 's|"python": ".*/|"python": "|' results/ab/*/state.json
XZ_OPT=-9e tar --create --xz --file="$here/results.tar.xz" --sort=name --owner=0 --group=0 --exclude=.gitignore \
  --exclude='registry*' --exclude=benchmark.json --exclude='*.csv' --exclude='*.log' --exclude=output.txt \
  --exclude=config_resolved.yaml --exclude=traces --exclude='launches/*/report' results
