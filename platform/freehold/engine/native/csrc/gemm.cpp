// Linear layers with weights packed once at load: out = x * W^T + bias, for any number of rows.
//
// Every output element is one chain of multiply-adds over the input channels, in order, whatever
// the number of rows. So a token's bits do not depend on the batch it was computed in. The blocking
// only decides which chains run side by side: up to 12 rows by 32 columns in registers.
#include <algorithm>

#include "vec.h"

namespace freehold {
namespace {

constexpr int PANEL = 32;      // columns that lie together in the packed weights
constexpr int MAX_ROWS = 12;   // 12 x 2 accumulators of 32 registers
constexpr int ROW_CHUNK = 192; // rows of a work unit: their inputs stay in the second-level cache

struct FloatKind {
  using Element = float;
  static constexpr int GROUP = 1;  // input channels that one multiply-add takes

  struct Weights {
    f32x16 a, b;
  };
  static Weights weights(const Element* panel, int64_t k) {
    return {load(panel + k * PANEL), load(panel + k * PANEL + LANES)};
  }
  static void multiply_add(f32x16& a, f32x16& b, const Weights& w, const Element* x) {
    const f32x16 factor = splat(*x);
    a += factor * w.a;
    b += factor * w.b;
  }
};

#if FREEHOLD_BF16_NATIVE
struct Bf16Kind {
  using Element = bf16;
  static constexpr int GROUP = 2;

  struct Weights {
    __m512bh a, b;
  };
  static Weights weights(const Element* panel, int64_t k) {
    const Element* at = panel + k * PANEL;
    return {reinterpret_cast<__m512bh>(_mm512_loadu_si512(at)),
            reinterpret_cast<__m512bh>(_mm512_loadu_si512(at + 2 * LANES))};
  }
  static void multiply_add(f32x16& a, f32x16& b, const Weights& w, const Element* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof pair);
    const __m512bh factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
    a = reinterpret_cast<f32x16>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(a), w.a, factor));
    b = reinterpret_cast<f32x16>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(b), w.b, factor));
  }
};
#endif

// ROWS rows of x (`stride` elements apart) times one panel; `columns` of the panel are real.
template <class Kind, int ROWS>
void multiply(const typename Kind::Element* x, int64_t stride, int64_t channels,
              const typename Kind::Element* panel, const float* bias, int columns,
              typename Kind::Element* out, int64_t out_stride) {
  f32x16 acc[ROWS][2] = {};
  for (int64_t k = 0; k < channels; k += Kind::GROUP) {
    const auto w = Kind::weights(panel, k);
#pragma GCC unroll 12
    for (int i = 0; i < ROWS; ++i) Kind::multiply_add(acc[i][0], acc[i][1], w, x + i * stride + k);
  }
  for (int half = 0; half < 2; ++half) {
    const int count = std::min(columns - half * LANES, LANES);
    if (count <= 0) break;
    const f32x16 shift = bias ? load_some(bias + half * LANES, count) : f32x16{};
    for (int i = 0; i < ROWS; ++i)
      store_some(out + i * out_stride + half * LANES, acc[i][half] + shift, count);
  }
}

template <class Kind, int ROWS>
void multiply_at_most(int rows, const typename Kind::Element* x, int64_t stride, int64_t channels,
                      const typename Kind::Element* panel, const float* bias, int columns,
                      typename Kind::Element* out, int64_t out_stride) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS)
      return multiply_at_most<Kind, ROWS - 1>(rows, x, stride, channels, panel, bias, columns, out,
                                              out_stride);
  }
  multiply<Kind, ROWS>(x, stride, channels, panel, bias, columns, out, out_stride);
}

template <class Kind>
void linear(const void* input, const void* packed, const float* bias, void* output, int64_t rows,
            int64_t channels, int64_t columns, int num_threads) {
  using T = typename Kind::Element;
  const T* x = static_cast<const T*>(input);
  T* out = static_cast<T*>(output);
  const int64_t panels = (columns + PANEL - 1) / PANEL;
  const int64_t chunks = (rows + ROW_CHUNK - 1) / ROW_CHUNK;
#pragma omp parallel for collapse(2) schedule(static) num_threads(num_threads) if (num_threads > 1)
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (int64_t p = 0; p < panels; ++p) {
      const T* panel = static_cast<const T*>(packed) + p * PANEL * channels;
      const int64_t column = p * PANEL;
      const int width = static_cast<int>(std::min<int64_t>(PANEL, columns - column));
      const int64_t end = std::min(rows, (chunk + 1) * ROW_CHUNK);
      for (int64_t row = chunk * ROW_CHUNK; row < end;) {
        // Equal shares: 13 rows as 7 + 6, not 12 + 1, which would read the panel for one row.
        const int64_t passes = (end - row + MAX_ROWS - 1) / MAX_ROWS;
        const int count = static_cast<int>((end - row + passes - 1) / passes);
        multiply_at_most<Kind, MAX_ROWS>(count, x + row * channels, channels, channels, panel,
                                         bias ? bias + column : nullptr, width,
                                         out + row * columns + column, columns);
        row += count;
      }
    }
}

}  // namespace
}  // namespace freehold

#define FREEHOLD_EXPORT extern "C" __attribute__((visibility("default")))

FREEHOLD_EXPORT int freehold_has_bf16() { return FREEHOLD_BF16_NATIVE; }

// x [rows, channels] and out [rows, columns] contiguous; bias float32 [columns] or null.
// packed: [columns / 32, channels / group, 32, group], group 1 for float32 (dtype 0) and 2 for
// bfloat16 (dtype 1); columns padded to 32, channels a multiple of the group.
FREEHOLD_EXPORT void freehold_linear(int dtype, const void* x, const void* packed,
                                     const float* bias, void* out, int64_t rows, int64_t channels,
                                     int64_t columns, int num_threads) {
  using namespace freehold;
  if (dtype == 0) linear<FloatKind>(x, packed, bias, out, rows, channels, columns, num_threads);
#if FREEHOLD_BF16_NATIVE
  if (dtype == 1) linear<Bf16Kind>(x, packed, bias, out, rows, channels, columns, num_threads);
#endif
}
