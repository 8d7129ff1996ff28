// A tile of 64 keys and values, packed for the two products of attention.
//
// Keys are transposed (a lane is a key), values keep their rows (a lane is a channel). With native
// bfloat16, elements stay pairs: of neighbouring channels for keys, of neighbouring keys for
// values, as vdpbf16ps wants them. Rows behind the last valid key are zero, never what the pool
// happens to hold: 0 * NaN would reach the result.
#pragma once

#include <cstddef>
#include <vector>

#include "vec.h"

namespace freehold {

constexpr int TILE = 64;
constexpr int TILE_VECS = TILE / LANES;
constexpr int MAX_ROWS = 6;  // of queries in registers: 6 x 4 accumulators of 32 registers

inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// 64-byte aligned scratch that a thread keeps from call to call.
struct Scratch {
  std::vector<float> storage;
  float* take(size_t floats) {
    if (storage.size() < floats + LANES) storage.resize(floats + LANES);
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    return storage.data() + (64 - address % 64) % 64 / sizeof(float);
  }
};

// Float arithmetic on float or bfloat16 storage; runs anywhere.
template <class T>
struct FloatTiles {
  using Element = T;

  // `dim` channels, padded to whole vectors.
  static size_t key_floats(int dim) { return static_cast<size_t>(round_up(dim, LANES)) * TILE; }
  static size_t value_floats(int dim) { return key_floats(dim); }
  static size_t query_floats(int dim) { return round_up(dim, LANES); }

  static void pack_query(const T* query, int dim, float* packed) {
    for (int d = 0; d < round_up(dim, LANES); ++d) packed[d] = d < dim ? to_float(query[d]) : 0.0f;
  }

  static void pack_keys(const T* const* rows, int count, int dim, float* packed) {
    for (int d0 = 0; d0 < dim; d0 += LANES) {
      const int width = dim - d0 < LANES ? dim - d0 : LANES;
      for (int j0 = 0; j0 < TILE; j0 += LANES) {
        alignas(64) float block[LANES][LANES] = {};
        for (int j = 0; j < LANES && j0 + j < count; ++j)
          for (int d = 0; d < width; ++d) block[j][d] = to_float(rows[j0 + j][d0 + d]);
        i32x16 lanes[LANES];
        std::memcpy(lanes, block, sizeof lanes);
        transpose16(lanes, reinterpret_cast<int32_t*>(packed + d0 * TILE + j0), TILE);
      }
    }
  }

  static void pack_values(const T* const* rows, int count, int dim, float* packed) {
    const int padded = round_up(dim, LANES);
    for (int j = 0; j < TILE; ++j) {
      float* out = packed + j * padded;
      if (j >= count) {
        std::memset(out, 0, padded * sizeof(float));
        continue;
      }
      for (int d = 0; d < dim; ++d) out[d] = to_float(rows[j][d]);
      for (int d = dim; d < padded; ++d) out[d] = 0.0f;
    }
  }

  // scores[i][j] = query i . key j, the channels always in the same order.
  template <int ROWS>
  static void score(const float* queries, const float* keys, int dim, float* scores) {
    const int padded = round_up(dim, LANES);
    f32x16 acc[ROWS][TILE_VECS] = {};
    for (int d = 0; d < padded; ++d)
      for (int v = 0; v < TILE_VECS; ++v) {
        const f32x16 key = load(keys + d * TILE + v * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; ++i) acc[i][v] += splat(queries[i * padded + d]) * key;
      }
    for (int i = 0; i < ROWS; ++i)
      for (int v = 0; v < TILE_VECS; ++v) store(scores + i * TILE + v * LANES, acc[i][v]);
  }

  // out[i] = out[i] * decay[i] + weights i . values, the keys always in the same order.
  template <int ROWS, int VECS>
  static void mix(const float* weights, const float* values, int padded, const float* decay,
                  float* out) {
    f32x16 acc[ROWS][VECS];
    for (int i = 0; i < ROWS; ++i)
      for (int v = 0; v < VECS; ++v) acc[i][v] = load(out + i * padded + v * LANES) * decay[i];
    for (int j = 0; j < TILE; ++j)
      for (int v = 0; v < VECS; ++v) {
        const f32x16 value = load(values + j * padded + v * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; ++i) acc[i][v] += splat(weights[i * TILE + j]) * value;
      }
    for (int i = 0; i < ROWS; ++i)
      for (int v = 0; v < VECS; ++v) store(out + i * padded + v * LANES, acc[i][v]);
  }
};

#if FREEHOLD_BF16_NATIVE

inline __m512bh as_bf16(__m512i v) { return reinterpret_cast<__m512bh>(v); }
inline f32x16 dot_pairs(f32x16 acc, __m512i a, __m512i b) {
  return reinterpret_cast<f32x16>(
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(acc), as_bf16(a), as_bf16(b)));
}
inline __m512i load_pairs(const void* p) { return _mm512_loadu_si512(p); }
inline __m512i splat_pair(const void* p) {
  int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi32(pair);
}

// Products of bfloat16 pairs, sums in float.
struct Bf16Tiles {
  using Element = bf16;

  static size_t key_floats(int dim) { return static_cast<size_t>(round_up(dim, 32)) / 2 * TILE; }
  static size_t value_floats(int dim) {
    return static_cast<size_t>(round_up(dim, LANES)) * (TILE / 2);
  }
  static size_t query_floats(int dim) { return round_up(dim, 32) / 2; }

  static void pack_query(const bf16* query, int dim, float* packed) {
    std::memset(packed, 0, query_floats(dim) * sizeof(float));
    std::memcpy(packed, query, dim * sizeof(bf16));
  }

  static void pack_keys(const bf16* const* rows, int count, int dim, float* packed) {
    for (int d0 = 0; d0 < dim; d0 += 32) {
      const __mmask32 mask = dim - d0 >= 32 ? ~0u : (1u << (dim - d0)) - 1;
      for (int j0 = 0; j0 < TILE; j0 += LANES) {
        i32x16 lanes[LANES] = {};
        for (int j = 0; j < LANES && j0 + j < count; ++j)
          lanes[j] = reinterpret_cast<i32x16>(_mm512_maskz_loadu_epi16(mask, rows[j0 + j] + d0));
        transpose16(lanes, reinterpret_cast<int32_t*>(packed + d0 / 2 * TILE + j0), TILE);
      }
    }
  }

  static void pack_values(const bf16* const* rows, int count, int dim, float* packed) {
    const int padded = round_up(dim, LANES);
    for (int j = 0; j < TILE; j += 2) {
      float* out = packed + j / 2 * padded;
      for (int d = 0; d < dim; d += LANES) {
        const __mmask16 mask = dim - d >= LANES ? 0xffff : (1u << (dim - d)) - 1;
        __m512i pair = _mm512_setzero_si512();
        if (j < count) pair = widen(_mm256_maskz_loadu_epi16(mask, rows[j] + d));
        if (j + 1 < count) {
          const __m512i second = widen(_mm256_maskz_loadu_epi16(mask, rows[j + 1] + d));
          pair = _mm512_or_si512(pair, _mm512_slli_epi32(second, 16));
        }
        _mm512_storeu_si512(out + d, pair);
      }
    }
  }

  template <int ROWS>
  static void score(const float* queries, const float* keys, int dim, float* scores) {
    const int pairs = round_up(dim, 32) / 2;
    f32x16 acc[ROWS][TILE_VECS] = {};
    for (int d = 0; d < pairs; ++d)
      for (int v = 0; v < TILE_VECS; ++v) {
        const __m512i key = load_pairs(keys + d * TILE + v * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; ++i)
          acc[i][v] = dot_pairs(acc[i][v], key, splat_pair(queries + i * pairs + d));
      }
    for (int i = 0; i < ROWS; ++i)
      for (int v = 0; v < TILE_VECS; ++v) store(scores + i * TILE + v * LANES, acc[i][v]);
  }

  template <int ROWS, int VECS>
  static void mix(const float* weights, const float* values, int padded, const float* decay,
                  float* out) {
    alignas(64) uint16_t rounded[ROWS][TILE];
    for (int i = 0; i < ROWS; ++i)
      for (int j = 0; j < TILE; j += LANES) {
        const __m512 w = reinterpret_cast<__m512>(load(weights + i * TILE + j));
        _mm256_store_si256(reinterpret_cast<__m256i*>(&rounded[i][j]),
                           reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(w)));
      }
    f32x16 acc[ROWS][VECS];
    for (int i = 0; i < ROWS; ++i)
      for (int v = 0; v < VECS; ++v) acc[i][v] = load(out + i * padded + v * LANES) * decay[i];
    for (int j = 0; j < TILE; j += 2)
      for (int v = 0; v < VECS; ++v) {
        const __m512i value = load_pairs(values + j / 2 * padded + v * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; ++i)
          acc[i][v] = dot_pairs(acc[i][v], value, splat_pair(&rounded[i][j]));
      }
    for (int i = 0; i < ROWS; ++i)
      for (int v = 0; v < VECS; ++v) store(out + i * padded + v * LANES, acc[i][v]);
  }

  static __m512i widen(__m256i v) { return _mm512_cvtepu16_epi32(v); }
};

#endif

}  // namespace freehold
