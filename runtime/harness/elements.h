/* The tensors of a reference program, row-major, as files of doubles. */

#include <stdio.h>
#include <stdlib.h>

inline FILE* open_or_end(const char* path, const char* how) {
  FILE* file = fopen(path, how);
  if (file) return file;
  perror(path);
  exit(1);
}

template <class T> T* zeros(size_t count) {
  auto* memory = static_cast<T*>(calloc(count, sizeof(T)));
  if (memory) return memory;
  fprintf(stderr, "no memory for %zu numbers\n", count);
  exit(1);
}

/* T is an integer type or double; files hold doubles. */
template <class T> struct Elements {
  T* data = nullptr;
  size_t count = 0;

  T operator[](Int at) const { return data[at]; }
  void set(Int at, T value) { data[at] = value; }
  void fill(size_t size, T value) {
    data = zeros<T>(size);
    count = size;
    for (size_t i = 0; i < count; i++) data[i] = value;
  }
  void read(const char* path, size_t size) {
    fill(size, T());
    double* values = zeros<double>(size);
    FILE* file = open_or_end(path, "rb");
    if (fread(values, sizeof(double), size, file) != size) {
      fprintf(stderr, "%s holds fewer than %zu numbers\n", path, size);
      exit(1);
    }
    fclose(file);
    for (size_t i = 0; i < count; i++) data[i] = T(values[i]);
    free(values);
  }
  void write(const char* path) {
    double* values = zeros<double>(count);
    for (size_t i = 0; i < count; i++) values[i] = double(data[i]);
    FILE* file = open_or_end(path, "wb");
    if (fwrite(values, sizeof(double), count, file) != count || fclose(file)) {
      perror(path);
      exit(1);
    }
    free(values);
  }
};
