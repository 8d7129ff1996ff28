// Paged causal attention for CPU: writes a step's keys and values into the pool, then attends.
//
// One kernel for decode and prefill. A query row meets its keys in tiles of 64 that start at
// multiples of 64 of the absolute position, with an online softmax over the tiles; rows never mix.
// So a row's bits depend on its own past only: not on how the prompt was cut into chunks, on what
// else is in the batch, or on the number of threads.
#include <algorithm>
#include <cmath>

#include "tiles.h"

namespace freehold {
namespace {

struct Problem {
  int64_t num_rows;
  const int32_t* query_starts;  // [num_rows + 1] first token of a row in the flattened batch
  const int32_t* context_lens;  // [num_rows] keys of a row, this step's included
  const int32_t* block_tables;  // [num_rows, max_blocks]
  int64_t max_blocks;
  int64_t block_size;
  int num_heads;
  int num_kv_heads;
  int dim;
  float scale;
  int64_t window;  // a query sees its last `window` keys, itself included; 0: all
  float softcap;   // 0: none

  int group() const { return num_heads / num_kv_heads; }
};

struct Unit {  // of work: queries [first, last) of one row with one key-value head
  int32_t row, kv_head, first, last;
};

constexpr int QUERY_TILE = 32;

std::vector<Unit> cut(const Problem& p) {
  std::vector<Unit> units;
  for (int32_t row = 0; row < p.num_rows; ++row) {
    const int32_t count = p.query_starts[row + 1] - p.query_starts[row];
    // The last tiles see the most keys: they start first, so that no thread ends late.
    for (int32_t first = (count - 1) / QUERY_TILE * QUERY_TILE; first >= 0; first -= QUERY_TILE)
      for (int32_t head = 0; head < p.num_kv_heads; ++head)
        units.push_back({row, head, first, std::min(first + QUERY_TILE, count)});
  }
  return units;
}

// Calls `body` with the number of rows as a compile-time constant.
template <class Body>
void with_rows(int rows, Body&& body) {
  switch (rows) {
    case 1: return body(std::integral_constant<int, 1>());
    case 2: return body(std::integral_constant<int, 2>());
    case 3: return body(std::integral_constant<int, 3>());
    case 4: return body(std::integral_constant<int, 4>());
    case 5: return body(std::integral_constant<int, 5>());
    default: return body(std::integral_constant<int, 6>());
  }
}

template <class Tiles, int ROWS>
void mix_channels(const float* weights, const float* values, int padded, const float* decay,
                  float* out) {
  int d = 0;
  for (; d + 4 * LANES <= padded; d += 4 * LANES)
    Tiles::template mix<ROWS, 4>(weights, values + d, padded, decay, out + d);
  for (; d < padded; d += LANES)
    Tiles::template mix<ROWS, 1>(weights, values + d, padded, decay, out + d);
}

// One softmax row over one tile: scores become weights; returns the factor for what was summed up.
// Not inlined: every caller gets the same instructions, hence the same rounding.
__attribute__((noinline)) float online_softmax(const Problem& p, float* scores, int64_t tile_start,
                                               int64_t position, float& peak, float& total) {
  const int64_t lowest = p.window ? position - p.window + 1 : 0;
  const int32_t from = static_cast<int32_t>(std::max<int64_t>(lowest - tile_start, 0));
  const int32_t to = static_cast<int32_t>(std::min<int64_t>(position - tile_start, TILE - 1));
  const bool all_visible = from == 0 && to == TILE - 1;
  const f32x16 never = splat(-std::numeric_limits<float>::infinity());
  i32x16 lane;
  for (int i = 0; i < LANES; ++i) lane[i] = i;

  f32x16 x[TILE_VECS], highest = never;
  for (int v = 0; v < TILE_VECS; ++v) {
    x[v] = load(scores + v * LANES) * p.scale;
    if (p.softcap != 0.0f) x[v] = tanh(x[v] / p.softcap) * p.softcap;
    if (!all_visible) {
      const i32x16 key = lane + v * LANES;
      x[v] = ((key >= from) & (key <= to)) ? x[v] : never;
    }
    highest = max(highest, x[v]);
  }
  const float new_peak = std::max(peak, reduce_max(highest));
  if (new_peak == -std::numeric_limits<float>::infinity()) {  // no visible key so far
    std::memset(scores, 0, TILE * sizeof(float));
    return 1.0f;
  }
  f32x16 sum{};
  for (int v = 0; v < TILE_VECS; ++v) {
    const f32x16 weight = exp_nonpositive(x[v] - new_peak);
    store(scores + v * LANES, weight);
    sum += weight;
  }
  // Most tiles leave the peak where it is.
  const float decay = new_peak == peak ? 1.0f : exp_nonpositive(splat(peak - new_peak))[0];
  total = total * decay + reduce_add(sum);
  peak = new_peak;
  return decay;
}

template <class Tiles>
void attend(const Problem& p, const Unit& u, const typename Tiles::Element* queries,
            const typename Tiles::Element* key_pool, const typename Tiles::Element* value_pool,
            typename Tiles::Element* out) {
  using T = typename Tiles::Element;
  static thread_local Scratch scratch;
  const int group = p.group(), dim = p.dim, padded = round_up(dim, LANES);
  const int num_rows = (u.last - u.first) * group;
  const size_t query_floats = Tiles::query_floats(dim);

  float* keys = scratch.take(Tiles::key_floats(dim) + Tiles::value_floats(dim) +
                             num_rows * (query_floats + padded + 2) + MAX_ROWS * TILE + 64);
  float* values = keys + Tiles::key_floats(dim);
  float* scores = values + Tiles::value_floats(dim);
  float* packed = scores + MAX_ROWS * TILE;
  float* sums = packed + num_rows * query_floats;
  float* peaks = sums + num_rows * padded;
  float* totals = peaks + num_rows;

  const int64_t token0 = p.query_starts[u.row];
  const int64_t count = p.query_starts[u.row + 1] - token0;
  const int64_t position0 = p.context_lens[u.row] - count;
  const auto offset = [&](int i) {  // of row i's head in `queries` and `out`
    return ((token0 + u.first + i / group) * p.num_heads + u.kv_head * group + i % group) * dim;
  };
  const auto position = [&](int i) { return position0 + u.first + i / group; };

  for (int i = 0; i < num_rows; ++i) {
    Tiles::pack_query(queries + offset(i), dim, packed + i * query_floats);
    std::memset(sums + i * padded, 0, padded * sizeof(float));
    peaks[i] = -std::numeric_limits<float>::infinity();
    totals[i] = 0.0f;
  }

  const int64_t end = position(num_rows - 1) + 1;
  const int64_t begin = p.window ? std::max<int64_t>(position(0) - p.window + 1, 0) : 0;
  for (int64_t start = begin / TILE * TILE; start < end; start += TILE) {
    const T *key_rows[TILE], *value_rows[TILE];
    const int visible = static_cast<int>(std::min<int64_t>(TILE, end - start));
    for (int j = 0; j < visible; ++j) {
      const int64_t block = p.block_tables[u.row * p.max_blocks + (start + j) / p.block_size];
      const int64_t slot = block * p.block_size + (start + j) % p.block_size;
      const int64_t at = (slot * p.num_kv_heads + u.kv_head) * dim;
      key_rows[j] = key_pool + at;
      value_rows[j] = value_pool + at;
    }
    Tiles::pack_keys(key_rows, visible, dim, keys);
    Tiles::pack_values(value_rows, visible, dim, values);

    for (int i = 0; i < num_rows; i += MAX_ROWS) {
      const int rows = std::min(MAX_ROWS, num_rows - i);
      if (start > position(i + rows - 1)) continue;
      if (p.window && start + TILE <= position(i) - p.window + 1) continue;
      with_rows(rows, [&](auto constant) {
        constexpr int ROWS = decltype(constant)::value;
        float decay[ROWS];
        Tiles::template score<ROWS>(packed + i * query_floats, keys, dim, scores);
        for (int r = 0; r < ROWS; ++r)
          decay[r] = online_softmax(p, scores + r * TILE, start, position(i + r), peaks[i + r],
                                    totals[i + r]);
        mix_channels<Tiles, ROWS>(scores, values, padded, decay, sums + i * padded);
      });
    }
  }

  for (int i = 0; i < num_rows; ++i)
    for (int d = 0; d < dim; d += LANES)
      store_some(out + offset(i) + d, load(sums + i * padded + d) / totals[i],
                 std::min(LANES, dim - d));
}

template <class Tiles>
void run(const Problem& p, const void* queries, const void* keys, const void* values,
         void* key_pool, void* value_pool, const int64_t* slots, void* out, int num_threads) {
  using T = typename Tiles::Element;
  const int64_t width = static_cast<int64_t>(p.num_kv_heads) * p.dim;
  const int64_t num_tokens = p.query_starts[p.num_rows];
  const auto units = cut(p);
  const int64_t num_units = static_cast<int64_t>(units.size());
  const int team = static_cast<int>(std::min<int64_t>(num_threads, num_units));
#pragma omp parallel num_threads(team) if (team > 1)
  {
#pragma omp for
    for (int64_t token = 0; token < num_tokens; ++token) {
      std::memcpy(static_cast<T*>(key_pool) + slots[token] * width,
                  static_cast<const T*>(keys) + token * width, width * sizeof(T));
      std::memcpy(static_cast<T*>(value_pool) + slots[token] * width,
                  static_cast<const T*>(values) + token * width, width * sizeof(T));
    }
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < num_units; ++i)
      attend<Tiles>(p, units[i], static_cast<const T*>(queries), static_cast<const T*>(key_pool),
                    static_cast<const T*>(value_pool), static_cast<T*>(out));
  }
}

}  // namespace
}  // namespace freehold

// Shapes: queries and out [tokens, num_heads, dim]; keys and values [tokens, num_kv_heads, dim];
// pools [blocks, block_size, num_kv_heads, dim]; all contiguous. dtype: 0 float32, 1 bfloat16.
extern "C" __attribute__((visibility("default"))) void freehold_paged_attention(
    int dtype, const void* queries, const void* keys, const void* values, void* key_pool,
    void* value_pool, void* out, const int64_t* slots, const int32_t* query_starts,
    const int32_t* context_lens, const int32_t* block_tables, int64_t num_rows, int64_t max_blocks,
    int64_t block_size, int num_heads, int num_kv_heads, int dim, float scale, int64_t window,
    float softcap, int num_threads) {
  using namespace freehold;
  const Problem p{num_rows,   query_starts, context_lens, block_tables, max_blocks, block_size,
                  num_heads,  num_kv_heads, dim,          scale,        window,     softcap};
#if FREEHOLD_BF16_NATIVE
  using Half = Bf16Tiles;
#else
  using Half = FloatTiles<bf16>;
#endif
  if (dtype == 0)
    run<FloatTiles<float>>(p, queries, keys, values, key_pool, value_pool, slots, out, num_threads);
  else
    run<Half>(p, queries, keys, values, key_pool, value_pool, slots, out, num_threads);
}
