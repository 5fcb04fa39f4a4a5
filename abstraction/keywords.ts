/**
 * @file Words that cannot be names in generated code: keywords of each language, and macros of its headers.
 *
 *     isReserved("new", ["c++"])     true        isReserved("new", ["typescript"])     true        isReserved("in", ["c++"])     false
 */

export type Language = "c++" | "cuda" | "cm" | "opencl" | "sycl" | "python" | "typescript";

const words = (text: string): string[] => text.trim().split(/\s+/);

/** C to C23 and C++ to C++26, alternative tokens included: a header is read as either. */
const C_FAMILY = words(`
  alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool break case catch char
  char8_t char16_t char32_t class co_await co_return co_yield compl complex concept const const_cast consteval constexpr constinit
  continue contract_assert decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if
  imaginary import inline int long module mutable namespace new noexcept noreturn not not_eq nullptr operator or or_eq private protected
  public reflexpr register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct
  switch synchronized template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
  virtual void volatile wchar_t while xor xor_eq`);

/** ECMAScript's reserved words in strict mode, and names that TypeScript reserves in signatures. */
const TYPESCRIPT = words(`
  any arguments as async await bigint boolean break case catch class const continue debugger declare default delete do else enum eval
  export extends false finally for from function get if implements import in infer instanceof interface is keyof let module namespace
  never new null number object of package private protected public readonly require return set static string super switch symbol
  this throw true try type typeof undefined unique unknown var void while with yield`);

/** The Python Language Reference, Keywords. */
const PYTHON = words(`
  False None True and as assert async await break class continue def del elif else except finally for from global if import in is
  lambda nonlocal not or pass raise return try while with yield`);

/** The keywords of each language. */
export const RESERVED: Readonly<Record<Language, ReadonlySet<string>>> = {
  "c++": new Set(C_FAMILY),
  /** The built-in variables of every kernel. CUDA C++ Programming Guide, Built-in Variables. */
  cuda: new Set([...C_FAMILY, ...words("blockDim blockIdx gridDim threadIdx warpSize")]),
  /** CM language specification, Data Types. */
  cm: new Set([...C_FAMILY, ...words("half matrix matrix_ref uchar uint ushort vector vector_ref")]),
  /** Address spaces, qualifiers and types of the OpenCL C specification, section 6, with vectors of up to sixteen elements. */
  opencl: new Set([
    ...C_FAMILY,
    ...words("constant global kernel local pipe read_only read_write uniform vec_step write_only"),
    ...words("half uchar uint ulong ushort event_t image2d_t sampler_t size_t ptrdiff_t"),
    ...["char", "double", "float", "half", "int", "long", "short", "uchar", "uint", "ulong", "ushort"].flatMap((type) =>
      [2, 3, 4, 8, 16].map((count) => type + String(count)),
    ),
  ]),
  /** The namespace that SYCL 2020 adds. */
  sycl: new Set([...C_FAMILY, "sycl"]),
  python: new Set(PYTHON),
  typescript: new Set(TYPESCRIPT),
};

/**
 * Macros by the shape of their names: capitals (`NULL`, `M_PI`, `EOF`), and the lower-case ones of the C library, of Linux and of compilers in GNU
 * mode. A test compares this with the macros that the available compiler defines.
 */
const MACRO =
  /^(?:[A-Z0-9_]*[A-Z][A-Z0-9_]*[A-Z][A-Z0-9_]*|(?:L|M|P|SYS)_\w+|(?:bit|signature)_[A-Z0-9]\w*|errno|i386|linux|math_errhandling|sched_priority|stderr|stdin|stdout|unix)$/;

/** Whether a word has a meaning of its own in one of these languages. */
export function isReserved(word: string, languages: readonly Language[]): boolean {
  if (languages.some((language) => RESERVED[language].has(word))) return true;
  return (
    languages.some((language) => language !== "typescript" && language !== "python") &&
    MACRO.test(word) &&
    !word.endsWith("_")
  );
}
