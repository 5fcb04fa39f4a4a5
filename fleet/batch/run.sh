#!/bin/sh
# Builds the kernels of this folder, checks every element that each computes, times it, and writes results.jsonl, which
# automap batch import reads. It needs a C++ compiler (for a GPU nvcc), no Node and no network. Interrupted, it goes on
# where it was when it is run again.
#
#     sh run.sh                        CXX names another compiler; JOBS is the number of compilations at once

set -fu
LC_ALL=C
export LC_ALL
unset CDPATH

children=
fail() {
  [ -z "$children" ] || kill $children 2> /dev/null
  printf 'run.sh: %s\n  %s\n' "$1" "$2" >&2
  exit 1
}
say() { printf '%s\n' "$1" >&2; }

# ---- 1. What is here, and what is missing

[ $# -eq 0 ] || fail "run.sh takes no words, got $1" "CXX names another compiler; JOBS is the number of compilations at once"
case $0 in */*) cd -- "${0%/*}" || exit 1 ;; esac
[ -f settings.sh ] && [ -f jobs ] || fail "this is no batch folder" "copy the folder as a whole, and run run.sh in it"
for tool in awk cat cut date env grep head mkfifo paste sed sha256sum sleep sort tail tr uname wc; do
  command -v "$tool" > /dev/null || fail "$tool is not on the PATH" "install coreutils, grep, sed and awk"
done
[ "$(uname -s)" = Linux ] || fail "this is $(uname -s)" "kernels are measured on Linux"
altered=$(sha256sum -c SHA256SUMS 2> /dev/null | grep -v ': OK$' | head -n 1)
[ -z "$altered" ] || fail "${altered%%:*} is not as it was exported" "copy the folder again"
. ./settings.sh

if [ "$language" = cuda ]; then
  home=${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}
  compiler=$(command -v nvcc || command -v "$home/bin/nvcc") ||
    fail "no nvcc on the PATH" "install the CUDA toolkit, or put its folder in CUDA_HOME"
  version=$("$compiler" --version | sed -n 's/.*release [0-9.]*, \(V[0-9.]*\).*/\1/p')
  words=$(for name in NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS NVCC_CCBIN; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || printf '%s\n' "$name=$value"
  done)
  options=
  command -v nvidia-smi > /dev/null || fail "no nvidia-smi on the PATH" "run this where a GPU is, with its driver installed"
  query=name,driver_version,compute_cap,uuid,memory.total,clocks.max.sm,power.limit
  gpu=$(nvidia-smi --query-gpu=$query --format=csv,noheader,nounits ${CUDA_VISIBLE_DEVICES:+-i "${CUDA_VISIBLE_DEVICES%%,*}"} | head -n 1)
  has=$(printf '%s' "$gpu" | cut -d, -f3 | tr -d ' .')
  [ "$has" = "$capability" ] ||
    fail "the GPU here has compute capability ${has:-that nvidia-smi does not tell} and kernels are for $capability" "export a batch for this GPU: automap batch export --target sm_$has"
  CUDA_VISIBLE_DEVICES=$(printf '%s' "$gpu" | cut -d, -f4 | tr -d ' ')
  export CUDA_VISIBLE_DEVICES
  driven=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p')
  disassembler=$(command -v cuobjdump || command -v "${compiler%/*}/cuobjdump") ||
    fail "no cuobjdump beside nvcc" "install the CUDA toolkit's binary utilities"
else
  set -- ${CXX:-}
  [ $# -gt 0 ] || set -- "$(command -v g++ || command -v clang++ || command -v c++ || echo g++)"
  compiler=$(command -v -- "$1") ||
    fail "no C++ compiler: $1 is not on the PATH" "install g++ (apt-get install g++), or name another compiler in CXX"
  shift
  version=$("$compiler" "$@" --version 2> /dev/null | head -n 1)
  words=$(for word; do printf '%s\n' "$word"; done)
  options=$*
  gpu=
  driven=
  disassembler=$(command -v objdump || command -v llvm-objdump) ||
    fail "neither objdump nor llvm-objdump is on the PATH" "install binutils (apt-get install binutils)"
  has=" $(awk -F: '/^(flags|Features)[ \t]*:/ { print $2; exit }' /proc/cpuinfo) "
  for word in $features; do
    case $has in *" $word "*) ;; *) say "this CPU has no $word: kernels that need it fail" ;; esac
  done
fi
[ -n "$version" ] || fail "$compiler does not answer" "repair it, or set CXX to another compiler"

# ---- 2. The machine, by which results are told apart from those of another

# Lines of text as a JSON list of texts.
list() {
  printf '['
  tr -cd '\011\012\040-\176' | tr '\011' ' ' | sed 's/[\\"]/\\&/g; s/^/"/; s/$/"/' | paste -s -d , - | tr -d '\n'
  printf ']'
}
batch=$(sha256sum manifest.json | cut -d ' ' -f 1)
name=$(uname -n | tr 'A-Z' 'a-z' | tr -cd 'a-z0-9._-' | sed 's/^[._-]*//' | cut -c 1-63)
cpuinfo=$(awk '/^(model name|flags|Features|CPU implementer|CPU part)[ \t]*:/ && !seen[$1 $2]++' /proc/cpuinfo | list)
machine="{\"kind\":\"machine\",\"version\":1,\"batch\":\"$batch\",\"name\":\"${name:-unknown}\""
machine="$machine,\"system\":$(printf '%s\n' "$(uname -s)" "$(uname -r)" "$(uname -m)" | list)"
machine="$machine,\"compiler\":$(printf '%s\n' "$compiler" "$version" ${words:+"$words"} | list)"
machine="$machine,\"cpuinfo\":$cpuinfo,\"processors\":$(grep -c '^processor' /proc/cpuinfo)"
machine="$machine,\"vectors\":$(cat /proc/sys/abi/sve_default_vector_length 2> /dev/null || echo 0)"
machine="$machine,\"gpu\":$(printf '%s' "${gpu:+$gpu
$driven
}" | list)}"

# A line that a power cut left without its end is measured again.
if [ -s results.jsonl ] && [ -n "$(tail -c 1 results.jsonl)" ]; then
  sed '$d' results.jsonl > results.partial && mv results.partial results.jsonl
fi
if [ -s results.jsonl ] && [ "$(head -n 1 results.jsonl)" != "$machine" ]; then
  fail "results.jsonl is of another machine, compiler or batch" "move it away to measure here from the beginning"
fi
mkdir -p build || fail "this folder cannot be written to" "copy it to where it can"
if [ -f build/pid ] && kill -0 "$(cat build/pid)" 2> /dev/null; then
  fail "it is running already, as process $(cat build/pid)" "wait for it; if that is another program, delete build/pid"
fi
if [ "$(cat build/machine 2> /dev/null)" != "$machine" ]; then
  rm -rf build
  mkdir build
  printf '%s\n' "$machine" > build/machine
fi
echo $$ > build/pid
trap 'rm -f build/pid build/pipe' EXIT
[ -s results.jsonl ] || printf '%s\n' "$machine" > results.jsonl || fail "results.jsonl cannot be written" "free some space"

stop() {
  trap '' INT TERM HUP
  [ -z "$children" ] || kill $children 2> /dev/null
  say "interrupted: sh run.sh goes on from here"
  exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM HUP

# ---- 3. Building, in parallel

# build OUTPUT SOURCE FLAGS...
build() {
  output=build/$1
  source=$2
  shift 2
  [ -e "$output" ] || [ -e "$output.failed" ] && return
  if "$compiler" $options "$source" -o "$output.$$" "$@" > "$output.log" 2>&1; then
    mv "$output.$$" "$output"
    say "built $source"
  elif grep -Eqi 'no space left|cannot allocate|out of memory|killed|quota exceeded|too many open' "$output.log"; then
    tail -n 3 "$output.log" >&2
    return 1
  else
    echo > "$output.failed"
    say "does not compile: $source"
  fi
}
jobs=${JOBS:-$(nproc 2> /dev/null || getconf _NPROCESSORS_ONLN)}
case $jobs in *[!0-9]* | 0*) fail "JOBS is $jobs" "set it to a number from 1 on, or not at all" ;; esac
say "building for $name with $compiler, $jobs at once"
part=0
while [ "$part" -lt "$jobs" ]; do
  (
    trap - INT TERM HUP EXIT
    awk "NR % $jobs == $part" builds | while read -r line; do build $line || exit 1; done
  ) &
  children="$children $!"
  part=$((part + 1))
done
for child in $children; do
  wait "$child" || fail "building failed, for want of space or memory" "free some, and run it again"
done
children=
while read -r output source flags; do
  case $source in
    kernels/*) ;;
    *) [ ! -e "build/$output.failed" ] || { cat "build/$output.log" >&2; fail "$compiler cannot compile $source" "take a newer compiler, or mend this one"; } ;;
  esac
done < builds

# ---- 4. Checking and timing, one kernel at a time

# Processors for so many threads: of different cores while there are enough.
choose() {
  allowed=$(sed -n 's/^Cpus_allowed_list:[ \t]*//p' /proc/self/status | tr , '\n' |
    awk -F- '{ for (cpu = $1; cpu <= ($2 == "" ? $1 : $2); cpu++) print cpu }')
  for cpu in $allowed; do
    core=$(cat "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" 2> /dev/null || echo "$cpu")
    echo "$core $cpu"
  done | awk '{ print (seen[$1]++) " " NR " " $2 }' | sort -n -k 1,1 -k 2,2 | head -n "$1" | cut -d ' ' -f 3 | paste -s -d ' ' -
}

# How often the instruction stands in the code of a kernel, as automap counts it.
count() {
  if [ "$language" = cuda ]; then
    "$disassembler" -sass "$1" > build/listing || fail "$disassembler does not read $1" "install it again"
    awk -v wanted="/$2/" '
      $1 ~ /^\/\*[0-9a-f]+\*\/$/ {
        word = $2 ~ /^@/ ? $3 : $2
        sub(/[^A-Z0-9].*/, "", word)
        if (word != "" && index(wanted, "/" word "/")) count++
      }
      END { print count + 0 }' build/listing
  else
    "$disassembler" -d --no-show-raw-insn "$1" > build/listing || fail "$disassembler does not read $1" "install it again"
    awk -v wanted="$2" '
      function bare(word) {
        if (word ~ /^vfn?m(add|sub|addsub|subadd)(132|213|231)/) sub(/132|213|231/, "", word)
        return word
      }
      BEGIN { wanted = bare(wanted) }
      /\(bad\)/ { bad = 1 }
      /^[ \t]*[0-9a-f]+:[ \t]/ {
        sub(/^[ \t]*[0-9a-f]+:[ \t]+/, "")
        words = split($0, word, /[ \t]+/)
        for (i = 1; i <= words && i <= 3; i++) if (bare(word[i]) == wanted) { count++; break }
      }
      END { print count == 0 && bad ? "unknown" : count + 0 }' build/listing
  fi
}

# Runs the measuring program on one kernel. What it answers is in build/answers.
measure() {
  rm -f build/pipe
  mkfifo build/pipe || fail "no pipe can be made here" "copy the folder to a disk of this machine"
  sed "s/^parent .*/parent $$/; s/^cpus .*/cpus $cpus/; s|^kernel .*|kernel build/$hash.so|" "problems/$problem/request" > build/request
  : > build/answers
  cat build/pipe > build/answers &
  reader=$!
  # The environment is always the same, since its size shifts the stack, and thereby the time of a kernel.
  env -i ${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"} ${gpu:+"CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"} \
    build/harness < build/request 3> build/pipe > /dev/null 2>&1 &
  harness=$!
  (
    trap 'kill "$nap"; exit' TERM
    heard=
    while :; do
      sleep "$silence" > /dev/null 2>&1 &
      nap=$!
      wait "$nap"
      [ "$heard" != "$(wc -c < build/answers)" ] || break
      heard=$(wc -c < build/answers)
    done
    echo > build/silent
    kill "$harness"
  ) &
  watcher=$!
  children="$harness $watcher $reader"
  wait "$harness"
  kill "$watcher" 2> /dev/null
  wait "$watcher" "$reader" 2> /dev/null
  children=
  [ ! -e build/silent ] || echo "fault 0 timed-out no sign of life for $silence s" >> build/answers
  rm -f build/silent
}

total=$(wc -l < jobs | tr -d ' ')
number=0
while read -r problem hash promise threads <&4; do
  number=$((number + 1))
  head="{\"kind\":\"result\",\"problem\":$problem,\"kernel\":\"$hash\""
  ! grep -qF "$head" results.jsonl || continue
  cpus=$(choose "$threads")
  set -- $cpus
  [ $# = "$threads" ] || fail "kernels have $threads threads, and $# processors are here" "measure them on a larger machine"
  instructions=0
  : > build/answers
  if [ -e "build/$hash.so.failed" ]; then
    told="does not compile"
  else
    [ "$promise" = - ] || instructions=$(count "build/$hash.so" "$promise") || exit 1
    [ "$instructions" != unknown ] ||
      fail "$disassembler does not know all instructions of a kernel" "install binutils as new as the compiler"
    if [ "$promise" != - ] && [ "$instructions" = 0 ]; then
      told="has no $promise in its code"
    else
      measure
      # Something else may have killed it. A kernel that is killed again is the cause.
      ! grep -q '^ended signal 9' build/answers || measure
      fault=$(grep -E '^(fault [0-9]+ environment|refused|unverifiable)' build/answers | head -n 1)
      grep -Eq '^(samples|wrong|out-of-bounds|fault|ended)' build/answers || fault=${fault:-no answer; can programs run in this folder?}
      [ -z "$fault" ] || fail "measuring failed: $fault" "this says nothing about the kernel: mend it, and run it again"
      told=$(awk '
        /^samples / { least = $3; for (i = 4; i <= NF; i++) if ($i + 0 < least + 0) least = $i; printf "%.4g us", 1e6 * least }
        /^(wrong|out-of-bounds|fault) / { sub(/ [0-9]+/, ""); print }' build/answers | head -n 1)
    fi
  fi
  # Of signs of life the last before each answer is kept.
  answers=$(awk '/^at / { at = $0; next } { if (at != "") print at; at = ""; print }' build/answers | cut -c 1-300000 | list)
  log=$(head -c 4000 "build/$hash.so.log" | list)
  printf '%s,"at":%s,"cpus":[%s],"instructions":%s,"compiled":%s,"answers":%s,"log":%s}\n' "$head" "$(date +%s)000" \
    "$(printf '%s' "$cpus" | tr ' ' ',')" "$instructions" "$([ -e "build/$hash.so" ] && echo true || echo false)" "$answers" "$log" \
    >> results.jsonl || fail "results.jsonl cannot be written" "free some space, and run it again"
  say "kernel $number of $total: $(printf '%s' "$hash" | cut -c 1-12) ${told:-ended without an answer}"
done 4< jobs
say "all $total kernels are in results.jsonl: bring it back, and import it with automap batch import"
