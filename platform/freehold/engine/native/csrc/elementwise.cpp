// What a transformer does between its products, each in one pass over memory: RMS norm, SiLU gate.
//
// Arithmetic in float; every row alone and in one order.
#include <algorithm>
#include <cmath>

#include "vec.h"

namespace freehold {
namespace {

enum Scaling { ROUND_THEN_SCALE = 0, SCALE_THEN_ROUND = 1, SCALE_BY_ONE_PLUS = 2 };

template <class T>
void rms_norm(const T* x, const T* weight, T* out, int64_t width, float epsilon, int scaling) {
  f32x16 squares{};
  for (int64_t j = 0; j < width; j += LANES) {
    const f32x16 v = load_some(x + j, static_cast<int>(std::min<int64_t>(LANES, width - j)));
    squares += v * v;
  }
  const float factor = 1.0f / std::sqrt(reduce_add(squares) / static_cast<float>(width) + epsilon);
  for (int64_t j = 0; j < width; j += LANES) {
    const int count = static_cast<int>(std::min<int64_t>(LANES, width - j));
    f32x16 v = load_some(x + j, count) * factor;
    const f32x16 w = load_some(weight + j, count);
    if (scaling == ROUND_THEN_SCALE) {
      T rounded[LANES];
      store(rounded, v);
      v = load(rounded) * w;
    } else if (scaling == SCALE_THEN_ROUND) {
      v = v * w;
    } else {
      v = v * (1.0f + w);
    }
    store_some(out + j, v, count);
  }
}

template <class T>
void silu_gate(const T* gate, const T* up, T* out, int64_t width) {
  for (int64_t j = 0; j < width; j += LANES) {
    const int count = static_cast<int>(std::min<int64_t>(LANES, width - j));
    // The activation is a value of the model's type, as it would be between two operations.
    T activated[LANES];
    store(activated, silu(load_some(gate + j, count)));
    store_some(out + j, load(activated) * load_some(up + j, count), count);
  }
}

}  // namespace
}  // namespace freehold

#define FREEHOLD_EXPORT extern "C" __attribute__((visibility("default")))

// x and out [rows, width] contiguous, weight [width]; dtype: 0 float32, 1 bfloat16. `scaling`:
// 0 rounds to dtype before the weight, 1 after it, 2 multiplies by 1 + weight and then rounds.
FREEHOLD_EXPORT void freehold_rms_norm(int dtype, const void* x, const void* weight, void* out,
                                       int64_t rows, int64_t width, float epsilon, int scaling,
                                       int num_threads) {
  using namespace freehold;
#pragma omp parallel for num_threads(num_threads) if (num_threads > 1 && rows > 15)
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = i * width;
    if (dtype == 0)
      rms_norm(static_cast<const float*>(x) + at, static_cast<const float*>(weight),
               static_cast<float*>(out) + at, width, epsilon, scaling);
    else
      rms_norm(static_cast<const bf16*>(x) + at, static_cast<const bf16*>(weight),
               static_cast<bf16*>(out) + at, width, epsilon, scaling);
  }
}

// out = silu(gate) * up, all [rows, width] contiguous.
FREEHOLD_EXPORT void freehold_silu_gate(int dtype, const void* gate, const void* up, void* out,
                                        int64_t rows, int64_t width, int num_threads) {
  using namespace freehold;
#pragma omp parallel for num_threads(num_threads) if (num_threads > 1 && rows > 7)
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = i * width;
    if (dtype == 0)
      silu_gate(static_cast<const float*>(gate) + at, static_cast<const float*>(up) + at,
                static_cast<float*>(out) + at, width);
    else
      silu_gate(static_cast<const bf16*>(gate) + at, static_cast<const bf16*>(up) + at,
                static_cast<bf16*>(out) + at, width);
  }
}
