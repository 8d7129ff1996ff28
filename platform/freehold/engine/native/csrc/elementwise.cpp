// What a transformer does between its products, each in one pass over memory: RMS norm, SiLU gate,
// rotary positions.
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

// out = x * cos + rotate_half(x) * sin, for one head of one token.
template <class T>
void rotate(const T* x, const T* cos, const T* sin, T* out, int64_t dim) {
  const int64_t half = dim / 2;
  for (int64_t j = 0; j < half; j += LANES) {
    const int count = static_cast<int>(std::min<int64_t>(LANES, half - j));
    const f32x16 low = load_some(x + j, count), high = load_some(x + half + j, count);
    store_some(out + j, low * load_some(cos + j, count) - high * load_some(sin + j, count), count);
    store_some(out + half + j,
               high * load_some(cos + half + j, count) + low * load_some(sin + half + j, count),
               count);
  }
}

template <class T>
void rotate_token(const T* x, const T* cos, const T* sin, T* out, int64_t heads, int64_t dim,
                  int64_t head_stride) {
  for (int64_t h = 0; h < heads; ++h) rotate(x + h * head_stride, cos, sin, out + h * dim, dim);
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

// x [tokens, heads, dim] by strides (in elements, dim contiguous), cos and sin [tokens, dim],
// out [tokens, heads, dim] contiguous; dim is even.
FREEHOLD_EXPORT void freehold_rotate(int dtype, const void* x, const void* cos, const void* sin,
                                     void* out, int64_t tokens, int64_t heads, int64_t dim,
                                     int64_t token_stride, int64_t head_stride, int num_threads) {
  using namespace freehold;
#pragma omp parallel for num_threads(num_threads) if (num_threads > 1 && tokens > 15)
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t from = i * token_stride, angle = i * dim, to = i * heads * dim;
    if (dtype == 0)
      rotate_token(static_cast<const float*>(x) + from, static_cast<const float*>(cos) + angle,
                   static_cast<const float*>(sin) + angle, static_cast<float*>(out) + to, heads,
                   dim, head_stride);
    else
      rotate_token(static_cast<const bf16*>(x) + from, static_cast<const bf16*>(cos) + angle,
                   static_cast<const bf16*>(sin) + angle, static_cast<bf16*>(out) + to, heads, dim,
                   head_stride);
  }
}
