// The index of each row's largest element (the first of equals): greedy sampling.
//
// NaN never wins; a row without any number gives 0.
#include "vec.h"

namespace freehold {
namespace {

template <class T>
int64_t argmax(const T* row, int64_t columns) {
  const float lowest = -std::numeric_limits<float>::infinity();
  f32x16 best = splat(lowest);
  int64_t j = 0;
  for (; j + LANES <= columns; j += LANES) {
    const f32x16 v = load(row + j);
    best = v > best ? v : best;
  }
  float peak = reduce_max(best);
  for (; j < columns; ++j) {
    const float x = to_float(row[j]);
    if (x > peak) peak = x;
  }
  for (int64_t i = 0; i < columns; ++i)
    if (to_float(row[i]) == peak) return i;
  return 0;
}

template <class T>
void argmax_rows(const void* values, int64_t rows, int64_t columns, int64_t* out, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows > 1)
  for (int64_t i = 0; i < rows; ++i) out[i] = argmax(static_cast<const T*>(values) + i * columns, columns);
}

}  // namespace
}  // namespace freehold

// values [rows, columns] contiguous, out int64 [rows]; dtype: 0 float32, 1 bfloat16.
extern "C" __attribute__((visibility("default"))) void freehold_argmax(
    int dtype, const void* values, int64_t rows, int64_t columns, int64_t* out, int num_threads) {
  using namespace freehold;
  if (dtype == 0)
    argmax_rows<float>(values, rows, columns, out, num_threads);
  else
    argmax_rows<bf16>(values, rows, columns, out, num_threads);
}
