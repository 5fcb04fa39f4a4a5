/* A tensor as the kernel takes it. Sizes and strides in elements; a layout with blocks inside is one dimension of memory. */
struct Layout {
  const char* name;
  at::ScalarType type;
  std::vector<int64_t> sizes, strides;
  int64_t elements; /* of memory */
};

static void check(const char* op, const at::Tensor& t, const Layout& l, const at::Device& device) {
  TORCH_CHECK(t.device() == device, op, ": ", l.name, " is on ", t.device(), ", another input on ", device);
  TORCH_CHECK(t.scalar_type() == l.type, op, ": ", l.name, " has elements of ", t.scalar_type(), ", the kernel reads ", l.type);
  bool same = t.dim() == (int64_t)l.sizes.size();
  for (int64_t d = 0; same && d < t.dim(); d++) same = t.sym_size(d).guard_int(__FILE__, __LINE__) == l.sizes[d];
  TORCH_CHECK(same, op, ": ", l.name, " has the shape ", t.sym_sizes(), ", the kernel was made for ", at::IntArrayRef(l.sizes));
  for (int64_t d = 0; same && d < t.dim(); d++)
    same = l.sizes[d] == 1 || t.sym_stride(d).guard_int(__FILE__, __LINE__) == l.strides[d];
  TORCH_CHECK(same, op, ": ", l.name, " has the strides ", t.sym_strides(), ", the kernel reads ", at::IntArrayRef(l.strides),
              ": laid_out of torch_ext.py copies it");
}

/* Holes between elements belong to the memory. */
static at::Tensor made(const Layout& l, const at::TensorOptions& options) {
  return at::empty({l.elements}, options.dtype(l.type)).as_strided(l.sizes, l.strides);
}
