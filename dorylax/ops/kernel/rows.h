// What every kernel is given and what each instruction set provides.
//
// A kernel reduces, copies or multiplies over compressed sparse rows: entry k of row r (offsets[r] <= k < offsets[r+1])
// refers to vertex neighbours[k] and to edge edges[k]. Scheduling (schedule.h) decides which rows a call computes and on
// which thread; kernels (kernels.inl, compiled once per instruction set) only compute.
#pragma once

#include <cstdint>

namespace dorylax {

enum class Dtype : int32_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kBFloat16 = 2,
  kBFloat16ToFloat32 = 3,  // of kScaledSum alone: rows stored in bfloat16; loops, scale and results in float32
};
constexpr int kDtypes = 3;  // that every kernel takes

enum class Op : int32_t {
  kSum = 0,          // out[r] = sum of x[n]
  kWeightedSum = 1,  // out[r] = sum of weight[e] * x[n]
  kMax = 2,          // out[r] = max of x[n]; NaN if any is; 0 for an empty row
  kMin = 3,          // likewise
  kSelectSum = 4,    // out[r] = sum of x[n] where other[n] == own[r]
  kScaledSum = 5,    // out[r] = scale[r] * (sum of x[n] + loops[r] * own[r])
};
constexpr int kOps = 6;

// A longer row is reduced in spans of this many entries, joined in order in float64: a float32 sum must not lose digits for
// being long, and threads can share a hub. The same spans wherever a row is reduced, so the same bits.
constexpr int64_t kSpan = 2048;

// Part of the C API: dorylax/ops/native.py fills it in, so a change of its fields changes the ABI number (capi.cc).
struct Rows {
  const int64_t* offsets;     // [R + 1], positions in neighbours and edges
  const int32_t* neighbours;  // [E]; null: entry k refers to vertex k - first_entry
  const int32_t* edges;       // [E]; null: entry k is edge k - first_entry
  int64_t num_entries;        // E: no index is read at or past it
  int64_t num_vertices;       // V
  int64_t first_entry;        // where arrays of values per entry begin: 0, or offsets[0] of a slice of the rows
  const void* x;              // [V, H, F]
  const void* weight;         // [E, H]
  const void* own;            // [R, H, F]; null for kScaledSum: nothing is added
  const void* other;          // [V, H, F]
  const void* loops;          // [R]; null: 1
  const void* scale;          // [R]; null: 1
  void* out;                  // [R, H, F]; per entry, from first_entry on, [E, H] for Dot and [E, H, F] for Expand
  int64_t heads;              // H
  int64_t width;              // F
};

// One of several sweeps over the same rows, each of which reads the neighbours below a bound only, so that what it reads
// stays in a cache (schedule.cc says when). Where a row's neighbours are not in order it goes less far; the entries are
// taken in the same order as in one sweep, so the results are the same bits.
struct Sweep {
  bool first;
  bool last;
  int64_t until;       // neighbours below it
  int64_t* positions;  // [R], where the sweep before ended in each row
};

// Where a sweep ends that begins at entry `first`: at `last`, or before the first neighbour at or past `until`.
// Static, as all functions of this header: each instruction set needs its own copy.
static inline int64_t sweep_end(const int32_t* neighbours, int64_t first, int64_t last, int64_t until) {
  constexpr int64_t kStride = 16;
  while (first + kStride <= last && neighbours[first + kStride - 1] < until) first += kStride;
  while (first < last && neighbours[first] < until) ++first;
  return first;
}

// Reduces rows [begin, end) of at most kSpan entries.
using ReduceRows = void (*)(const Rows&, int64_t begin, int64_t end);
// Likewise, what one sweep adds.
using SweepRows = void (*)(const Rows&, int64_t begin, int64_t end, const Sweep&);
// Reduces entries [first, last) of one row into `partial`, [H * F] accumulators (float64 for float64, else float32);
// `resume`: into what `partial` holds of the entries before them.
using ReduceSpan = void (*)(const Rows&, int64_t row, int64_t first, int64_t last, bool resume, void* partial);
// Combines `count` partials of one row, [count, H * F], in order, into out.
using CombineSpans = void (*)(const Rows&, int64_t row, const void* partials, int64_t count);
// Computes the entries of rows [begin, end) that lie in [first, last).
using PerEntry = void (*)(const Rows&, int64_t begin, int64_t end, int64_t first, int64_t last);

// What one call of additive attention reads and writes (attention.inl has the equations). Rows are the in-edges of
// targets in the forward passes and the out-edges of sources in the backward pass. Accumulators are float64 for float64,
// else float32.
struct Attention {
  const int64_t* offsets;     // [V + 1]
  const int32_t* neighbours;  // [E]
  int64_t num_entries;        // E: no index is read at or past it
  const void* z;              // [V, H, F]
  const void* source;         // [V, H], s
  const void* target;         // [V, H], t
  const void* loops;          // [V], above 0 where the implicit loop takes part
  const void* y;              // backward: [V, H, F]
  const void* tilt;           // backward: [V, H, F]
  const void* shift;          // backward: [V, H] accumulators
  const void* scale;          // backward: likewise
  const void* ct;             // backward: the cotangent of y, [V, H, F]
  void* out;                  // forward: y; backward: the cotangent of z
  void* out_tilt;             // forward, saving: [V, H, F]
  void* out_shift;            // forward, saving: [V, H] accumulators
  void* out_scale;            // likewise
  void* out_source;           // backward: the cotangent of s
  void* out_target;           // backward: the cotangent of t
  void* packed;               // backward: [V, 4, H] accumulators, written by `prepare` and read along edges
  int64_t heads;              // H
  int64_t width;              // F
  double slope;               // of the leaky ReLU below 0
};

// Passes over rows of attention.
enum class Attend : int32_t { kForward = 0, kSaving = 1, kBackward = 2 };
constexpr int kAttends = 3;

// As ReduceRows, ReduceSpan and CombineSpans; a partial is `attention_partial` accumulators.
using AttendRows = void (*)(const Attention&, int64_t begin, int64_t end);
using AttendSpan = void (*)(const Attention&, int64_t row, int64_t first, int64_t last, void* partial);
using AttendCombine = void (*)(const Attention&, int64_t row, const void* partials, int64_t count);
// What the backward pass needs of rows [begin, end) before it runs along edges.
using AttendPrepare = void (*)(const Attention&, int64_t begin, int64_t end);

// Three numbers per head and two rows: see State in attention.inl.
static inline int64_t attention_partial(int64_t heads, int64_t width) { return heads * (3 + 2 * width); }

struct Kernels {
  const char* name;
  ReduceRows reduce[kOps][kDtypes + 1];  // null for kBFloat16ToFloat32 but of kScaledSum
  SweepRows sweep[kOps][kDtypes + 1];    // also null where results are narrower than accumulators
  ReduceSpan span[kOps][kDtypes + 1];
  CombineSpans combine[kOps][kDtypes + 1];
  PerEntry dot[kDtypes];     // out[k, h] = sum over f of own[r, h, f] * x[n, h, f]
  PerEntry expand[kDtypes];  // out[k] = x[n]; x[r] where neighbours is null
  AttendRows attend[kAttends][kDtypes];
  AttendSpan attend_span[kAttends][kDtypes];
  AttendCombine attend_combine[kAttends][kDtypes];
  AttendPrepare attend_prepare[kDtypes];
};

const Kernels* kernels_avx512();    // null where this build or this processor has none
const Kernels* kernels_avx2();
const Kernels* kernels_baseline();  // never null

static inline int64_t bytes_per_accumulator(Dtype dtype) { return dtype == Dtype::kFloat64 ? 8 : 4; }

// What an entry reads of its neighbour, per column.
static inline int64_t bytes_per_value(Op op, Dtype dtype) {
  const int64_t bytes = dtype == Dtype::kFloat64 ? 8 : dtype == Dtype::kFloat32 ? 4 : 2;
  return op == Op::kSelectSum ? 2 * bytes : bytes;
}

}  // namespace dorylax
