/* A tensor as the kernel takes it. Sizes and strides in elements; a layout with blocks inside is one dimension of memory. */
struct Layout {
  const char* name;
  at::ScalarType type;
  std::vector<int64_t> sizes, strides;
  int64_t elements; /* of memory */
};

/* As text, made here: where the build links a libstdc++ of its own, a number that PyTorch's libraries print to a stream of that one is a crash. */
template <typename Numbers>
static std::string shown(const Numbers& numbers) {
  std::string text;
  for (const auto& n : numbers) text += (text.empty() ? "" : ", ") + std::to_string(c10::SymInt(n).guard_int(__FILE__, __LINE__));
  return "[" + text + "]";
}

static void check(const char* op, const at::Tensor& t, const Layout& l, const at::Device& device) {
  TORCH_CHECK(t.device() == device, op, ": ", l.name, " is on ", t.device().str(), ", another input on ", device.str());
  TORCH_CHECK(t.scalar_type() == l.type, op, ": ", l.name, " has elements of ", c10::toString(t.scalar_type()),
              ", the kernel reads ", c10::toString(l.type));
  bool same = t.dim() == (int64_t)l.sizes.size();
  for (int64_t d = 0; same && d < t.dim(); d++) same = t.sym_size(d).guard_int(__FILE__, __LINE__) == l.sizes[d];
  TORCH_CHECK(same, op, ": ", l.name, " has the shape ", shown(t.sym_sizes()), ", the kernel was made for ", shown(l.sizes));
  for (int64_t d = 0; same && d < t.dim(); d++)
    same = l.sizes[d] == 1 || t.sym_stride(d).guard_int(__FILE__, __LINE__) == l.strides[d];
  TORCH_CHECK(same, op, ": ", l.name, " has the strides ", shown(t.sym_strides()), ", the kernel reads ", shown(l.strides),
              ": laid_out of torch_ext.py copies it");
}

/* Holes between elements belong to the memory. */
static at::Tensor made(const Layout& l, const at::TensorOptions& options) {
  return at::empty({l.elements}, options.dtype(l.type)).as_strided(l.sizes, l.strides);
}
