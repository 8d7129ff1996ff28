// Sixteen floats at a time, in GCC/Clang vector extensions: compiles to AVX-512, AVX2 or NEON.
//
// Every function here works lane by lane and in one fixed order, so a result never depends on
// what its neighbours in the batch are.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#define FREEHOLD_BF16_NATIVE 1
#else
#define FREEHOLD_BF16_NATIVE 0
#endif

namespace freehold {

constexpr int LANES = 16;

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));

struct bf16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }

inline float to_float(bf16 x) {
  uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

inline void from_float(float x, float& y) { y = x; }

// Round to nearest even; NaN stays NaN.
inline void from_float(float x, bf16& y) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    y.bits = static_cast<uint16_t>((bits >> 16) | 0x40u);
    return;
  }
  bits += 0x7fffu + ((bits >> 16) & 1u);
  y.bits = static_cast<uint16_t>(bits >> 16);
}

inline f32x16 splat(float x) { return f32x16{} + x; }

inline f32x16 load(const float* p) {
  f32x16 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store(float* p, f32x16 v) { std::memcpy(p, &v, sizeof v); }

inline f32x16 load(const bf16* p) {
  typedef uint16_t u16x16 __attribute__((vector_size(32)));
  typedef uint32_t u32x16 __attribute__((vector_size(64)));
  u16x16 halves;
  std::memcpy(&halves, p, sizeof halves);
  const u32x16 bits = __builtin_convertvector(halves, u32x16) << 16;
  f32x16 v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

// Rounded to nearest even, as `from_float` does.
inline void store(bf16* p, f32x16 v) {
#if FREEHOLD_BF16_NATIVE
  const __m256bh halves = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
  std::memcpy(p, &halves, sizeof halves);
#else
  for (int i = 0; i < LANES; ++i) from_float(v[i], p[i]);
#endif
}

// The first `count` lanes only.
template <class T>
inline void store_some(T* p, f32x16 v, int count) {
  if (count == LANES) return store(p, v);
  T lanes[LANES];
  store(lanes, v);
  std::memcpy(p, lanes, count * sizeof(T));
}

template <class T>
inline f32x16 load_some(const T* p, int count) {
  if (count == LANES) return load(p);
  T lanes[LANES] = {};
  std::memcpy(lanes, p, count * sizeof(T));
  return load(lanes);
}

inline f32x16 max(f32x16 a, f32x16 b) { return a > b ? a : b; }

inline float reduce_max(f32x16 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(reinterpret_cast<__m512>(v));
#else
  float m = v[0];
  for (int i = 1; i < LANES; ++i) m = v[i] > m ? v[i] : m;
  return m;
#endif
}

inline float reduce_add(f32x16 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(reinterpret_cast<__m512>(v));
#else
  float s[LANES];
  std::memcpy(s, &v, sizeof s);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) s[i] += s[i + width];
  return s[0];
#endif
}

// e^r for |r| <= ln(2) / 2; exactly 1 at 0.
inline f32x16 exp_reduced(f32x16 r) {
  f32x16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * (r * r) + r + 1.0f;
}

// e^x for x <= 0, within 2 ulp: exactly 1 at 0, and 0 at minus infinity.
inline f32x16 exp_nonpositive(f32x16 x) {
#if defined(__AVX512F__)
  // e^-104 is below half of the smallest number, so it becomes 0.
  const f32x16 clamped = max(x, splat(-104.0f));
  const f32x16 n = reinterpret_cast<f32x16>(
      _mm512_roundscale_ps(reinterpret_cast<__m512>(clamped * 1.44269504088896341f), 8));
  const f32x16 r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  return reinterpret_cast<f32x16>(_mm512_scalef_ps(reinterpret_cast<__m512>(exp_reduced(r)),
                                                   reinterpret_cast<__m512>(n)));
#else
  const f32x16 clamped = max(x, splat(-87.0f));
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
  const f32x16 shifter = splat(12582912.0f);
  const f32x16 n = (clamped * 1.44269504088896341f + shifter) - shifter;
  const f32x16 r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  const i32x16 exponent = (__builtin_convertvector(n, i32x16) + 127) << 23;
  f32x16 scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  return x < -87.0f ? f32x16{} : exp_reduced(r) * scale;
#endif
}

// x / (1 + e^-x), from the side on which the exponential cannot overflow.
inline f32x16 silu(f32x16 x) {
  const f32x16 t = exp_nonpositive(-max(x, -x));
  return x * (x < 0.0f ? t : splat(1.0f)) / (1.0f + t);
}

// tanh(x), within 2 ulp: a polynomial near 0, where the quotient would cancel.
inline f32x16 tanh(f32x16 x) {
  const f32x16 magnitude = max(x, -x);
  const f32x16 t = exp_nonpositive(-2.0f * magnitude);
  const f32x16 quotient = (1.0f - t) / (1.0f + t);
  const f32x16 z = x * x;
  f32x16 p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const f32x16 small = x + x * z * p;
  return magnitude < 0.625f ? small : (x < 0.0f ? -quotient : quotient);
}

// Round r of a transposition swaps bit r of the row number with bit r of the column number.
template <int WIDTH>
inline void transpose_round(i32x16 (&a)[LANES]) {
  i32x16 low, high;
  for (int j = 0; j < LANES; ++j) {
    low[j] = (j & WIDTH) ? (j ^ WIDTH) + LANES : j;
    high[j] = (j & WIDTH) ? j + LANES : (j ^ WIDTH);
  }
#pragma GCC unroll 16
  for (int i = 0; i < LANES; ++i) {
    if (i & WIDTH) continue;
    const i32x16 upper = a[i], lower = a[i | WIDTH];
    a[i] = __builtin_shuffle(upper, lower, low);
    a[i | WIDTH] = __builtin_shuffle(upper, lower, high);
  }
}

// Transposes 16 x 16 elements of 32 bits; row j of the result goes to `columns + j * stride`.
inline void transpose16(i32x16 (&a)[LANES], int32_t* columns, int stride) {
  transpose_round<1>(a);
  transpose_round<2>(a);
  transpose_round<4>(a);
  transpose_round<8>(a);
  for (int j = 0; j < LANES; ++j) std::memcpy(columns + j * stride, &a[j], sizeof a[j]);
}

}  // namespace freehold
