/* Tensors as they lie in memory: numbers of their own size, floats of 8 and 16 bits as their bits. */

template <class C, class T> struct Plain {
  C* data = nullptr;
  T operator[](Int at) const { return T(data[at]); }
  void set(Int at, T value) { data[at] = C(value); }
};

template <class F> struct Memory;
template <> struct Memory<u8> : Plain<uint8_t, Int> {};
template <> struct Memory<s8> : Plain<int8_t, Int> {};
template <> struct Memory<u16> : Plain<uint16_t, Int> {};
template <> struct Memory<s16> : Plain<int16_t, Int> {};
template <> struct Memory<u32> : Plain<uint32_t, Int> {};
template <> struct Memory<s32> : Plain<int32_t, Int> {};
template <> struct Memory<tf32> : Plain<float, double> {};
template <> struct Memory<f32> : Plain<float, double> {};
template <> struct Memory<f64> : Plain<double, double> {};

/* Floats of one byte: values given to set() are rounded already. */
template <class F> struct ByteMemory {
  uint8_t* data = nullptr;
  double operator[](Int at) const { return F::decoded(data[at]); }
  void set(Int at, double value) { data[at] = F::encoded(value); }
};
template <> struct Memory<e4m3> : ByteMemory<e4m3> {};
template <> struct Memory<e5m2> : ByteMemory<e5m2> {};

/* Half of a float: values given to set() are rounded already. */
template <> struct Memory<bf16> {
  uint16_t* data = nullptr;
  double operator[](Int at) const {
    uint32_t bits = uint32_t(data[at]) << 16;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
  }
  void set(Int at, double value) {
    float narrow = float(value);
    uint32_t bits;
    __builtin_memcpy(&bits, &narrow, 4);
    data[at] = uint16_t(bits >> 16 | (is_nan(value) ? 0x40 : 0));
  }
};

/* Sign, five exponent bits, ten fraction bits: values given to set() are rounded already. */
template <> struct Memory<f16> {
  uint16_t* data = nullptr;
  double operator[](Int at) const {
    int bits = data[at], exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    double size = exponent == 31 ? (fraction ? not_a_number : infinity)
                  : exponent == 0 ? __builtin_ldexp(fraction, -24)
                                  : __builtin_ldexp(fraction + 1024, exponent - 25);
    return bits & 0x8000 ? -size : size;
  }
  void set(Int at, double value) {
    uint16_t sign = __builtin_signbit(value) ? 0x8000 : 0;
    double size = __builtin_fabs(value);
    if (!(size < infinity)) data[at] = uint16_t(sign | 0x7c00 | (is_nan(value) ? 0x200 : 0));
    else if (size < 0x1p-14) data[at] = uint16_t(sign | int(size * 0x1p24));
    else {
      int exponent = __builtin_ilogb(size);
      data[at] = uint16_t(sign | (exponent + 15) << 10 | (int(__builtin_ldexp(size, 10 - exponent)) & 0x3ff));
    }
  }
};
