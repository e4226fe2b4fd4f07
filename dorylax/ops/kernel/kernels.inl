// The kernels, written once over vectors of W lanes and compiled once per instruction set. The including file defines
//   DORYLAX_ISA        the namespace and name of this set,
//   DORYLAX_BYTES      bytes in a vector register,
//   DORYLAX_REGISTERS  vectors of accumulators that fit in registers beside what a step needs.
// No standard library templates here: the linker keeps one copy of those, which might then be one that this processor
// cannot run.
#include <cstdint>
#include <cstring>

#include "rows.h"

namespace dorylax {
namespace DORYLAX_ISA {
namespace {

#define DORYLAX_INLINE inline __attribute__((always_inline))

// Entries ahead of which neighbours' rows are prefetched: far enough to cover DRAM latency, near enough to stay in L1.
constexpr int64_t kAhead = 16;
constexpr int64_t kLine = 64;

struct BFloat16 {
  uint16_t bits;
};

// A bfloat16 whose results are float32.
struct StoredBFloat16 {
  BFloat16 value;
};

template <class S, int W>
struct Lanes {
  typedef S type __attribute__((vector_size(W * sizeof(S))));
};
template <class S, int W>
using Vec = typename Lanes<S, W>::type;

// How elements of T are loaded to, and stored from, vectors of accumulators.
template <class T>
struct Element {
  using Acc = T;
  using Out = T;
  template <int W>
  static DORYLAX_INLINE Vec<Acc, W> load(const T* from) {
    Vec<Acc, W> v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
  template <int W>
  static DORYLAX_INLINE void store(T* to, Vec<Acc, W> v) {
    std::memcpy(to, &v, sizeof(v));
  }
};

template <>
struct Element<BFloat16> {
  using Acc = float;
  using Out = BFloat16;
  template <int W>
  static DORYLAX_INLINE Vec<float, W> load(const BFloat16* from) {
    Vec<uint16_t, W> bits;
    std::memcpy(&bits, from, sizeof(bits));
    Vec<uint32_t, W> wide = __builtin_convertvector(bits, Vec<uint32_t, W>) << 16;
    Vec<float, W> v;
    std::memcpy(&v, &wide, sizeof(v));
    return v;
  }
  template <int W>
  static DORYLAX_INLINE void store(BFloat16* to, Vec<float, W> v) {
    Vec<uint32_t, W> wide;
    std::memcpy(&wide, &v, sizeof(v));
    // Round to nearest even; a NaN must not round up to infinity.
    Vec<uint32_t, W> rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16;
    Vec<uint32_t, W> quiet = (wide >> 16) | 0x40;
    Vec<uint16_t, W> bits = __builtin_convertvector((v == v) ? rounded : quiet, Vec<uint16_t, W>);
    std::memcpy(to, &bits, sizeof(bits));
  }
};

template <>
struct Element<StoredBFloat16> {
  using Acc = float;
  using Out = float;
  template <int W>
  static DORYLAX_INLINE Vec<float, W> load(const StoredBFloat16* from) {
    return Element<BFloat16>::load<W>(&from->value);
  }
};

template <class T>
using AccOf = typename Element<T>::Acc;
template <class T>
using OutOf = typename Element<T>::Out;

template <class A, int W>
DORYLAX_INLINE Vec<A, W> splat(A value) {
  Vec<A, W> v = {};
  return v + value;
}

// --- Reductions ------------------------------------------------------------------------------------------------------
// Operand values of one entry's vector are combined into an accumulator; `begin` is the accumulator of no entries.

struct Sum {
  static constexpr Op kOp = Op::kSum;
  template <class A, int W>
  static DORYLAX_INLINE Vec<A, W> begin() {
    return splat<A, W>(A(0));
  }
  template <class A, int W>
  static DORYLAX_INLINE Vec<A, W> join(Vec<A, W> a, Vec<A, W> b) {
    return a + b;
  }
};

struct WeightedSum : Sum {
  static constexpr Op kOp = Op::kWeightedSum;
};

struct SelectSum : Sum {
  static constexpr Op kOp = Op::kSelectSum;
};

// A sum in all but where its rows go (Finished).
struct ScaledSum : Sum {
  static constexpr Op kOp = Op::kScaledSum;
};

// The reduction of a row's entries, and of its spans: what is done to a whole row is left out.
template <class R>
struct EntriesOf {
  using type = R;
};
template <>
struct EntriesOf<ScaledSum> {
  using type = Sum;
};

template <bool kLargest>
struct Extremum {
  static constexpr Op kOp = kLargest ? Op::kMax : Op::kMin;
  template <class A, int W>
  static DORYLAX_INLINE Vec<A, W> begin() {
    return splat<A, W>(kLargest ? -A(__builtin_inf()) : A(__builtin_inf()));
  }
  template <class A, int W>
  static DORYLAX_INLINE Vec<A, W> join(Vec<A, W> a, Vec<A, W> b) {
    // A NaN replaces the accumulator and, comparing false, is never replaced.
    return kLargest ? ((b > a) | (b != b) ? b : a) : ((b < a) | (b != b) ? b : a);
  }
};

// Columns of one row are covered by vectors at `start + i * W`, but the last begins at `last`, so that it ends with the
// row and may overlap the one before: odd widths need neither masks nor padding.
struct Columns {
  int64_t start;
  int64_t last;
};

template <int W, int N>
DORYLAX_INLINE int64_t column(const Columns& c, int i) {
  return i == N - 1 ? c.last : c.start + i * W;
}

// Where a reduced row goes: as accumulators (a partial of a hub, or an output of the same type), or rounded to the output.
template <class A>
struct AsAccumulated {
  A* row;
  template <int W>
  DORYLAX_INLINE void store(int64_t column, Vec<A, W> v) const {
    std::memcpy(row + column, &v, sizeof(v));
  }
};

template <class T>
struct Rounded {
  T* row;
  template <int W>
  DORYLAX_INLINE void store(int64_t column, Vec<AccOf<T>, W> v) const {
    Element<T>::template store<W>(row + column, v);
  }
};

// A row of a scaled sum: the row's own values are added and the whole is scaled while it is still in registers.
template <class T>
struct Finished {
  OutOf<T>* row;
  const T* own;  // null: nothing is added
  AccOf<T> loop;
  AccOf<T> scale;
  template <int W>
  DORYLAX_INLINE void store(int64_t column, Vec<AccOf<T>, W> v) const {
    if (own) v += loop * Element<T>::template load<W>(own + column);
    Element<OutOf<T>>::template store<W>(row + column, v * scale);
  }
};

DORYLAX_INLINE AsAccumulated<float> output(float* row) { return {row}; }
DORYLAX_INLINE AsAccumulated<double> output(double* row) { return {row}; }
DORYLAX_INLINE Rounded<BFloat16> output(BFloat16* row) { return {row}; }

template <class T>
DORYLAX_INLINE AccOf<T> factor(const void* factors, int64_t row) {
  return factors ? Element<T>::template load<1>(static_cast<const T*>(factors) + row)[0] : AccOf<T>(1);
}

// Where the whole row goes.
template <class R, class T>
DORYLAX_INLINE auto destination(const Rows& rows, int64_t row) {
  const int64_t start = row * rows.heads * rows.width;
  OutOf<T>* out = static_cast<OutOf<T>*>(rows.out) + start;
  if constexpr (R::kOp == Op::kScaledSum) {
    const T* own = rows.own ? static_cast<const T*>(rows.own) + start : nullptr;
    return Finished<T>{out, own, factor<OutOf<T>>(rows.loops, row), factor<OutOf<T>>(rows.scale, row)};
  } else {
    return output(out);
  }
}

// Entries [first, last) of a row, and what those before them gave.
template <class A>
struct Part {
  int64_t first;
  int64_t last;
  int64_t fetched;  // no entry at or past it is prefetched
  const A* before;  // [H * F]; null: none come before
};

// Reduces a part of one row over N vectors of columns, all kept in registers.
template <class R, class T, int W, int N, class To>
DORYLAX_INLINE void reduce_tile(const Rows& rows, int64_t row, int64_t head, const Part<AccOf<T>>& part,
                                const Columns& columns, const To& to) {
  using A = AccOf<T>;
  constexpr bool kWeighted = R::kOp == Op::kWeightedSum;
  constexpr bool kSelect = R::kOp == Op::kSelectSum;
  const int64_t stride = rows.heads * rows.width;
  const T* x = static_cast<const T*>(rows.x) + head * rows.width;
  const T* other = kSelect ? static_cast<const T*>(rows.other) : nullptr;
  const T* weight = kWeighted ? static_cast<const T*>(rows.weight) + head : nullptr;
  const int32_t* neighbours = rows.neighbours;

  Vec<A, W> acc[N];
  Vec<A, W> own[kSelect ? N : 1];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) {
    if (part.before) {
      std::memcpy(&acc[i], part.before + head * rows.width + column<W, N>(columns, i), sizeof(acc[i]));
    } else {
      acc[i] = R::template begin<A, W>();
    }
    if constexpr (kSelect) {
      own[i] = Element<T>::template load<W>(static_cast<const T*>(rows.own) + row * stride + column<W, N>(columns, i));
    }
  }

  auto step = [&](int64_t k) __attribute__((always_inline)) {
    const int64_t vertex = neighbours ? neighbours[k] : k - rows.first_entry;
    const T* from = x + vertex * stride;
    A w = A(1);
    if constexpr (kWeighted) {
      const T* at = weight + (rows.edges ? rows.edges[k] : k - rows.first_entry) * rows.heads;
      w = Element<T>::template load<1>(at)[0];
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      Vec<A, W> value = Element<T>::template load<W>(from + column<W, N>(columns, i));
      if constexpr (kWeighted) {
        acc[i] += w * value;
      } else if constexpr (kSelect) {
        Vec<A, W> key = Element<T>::template load<W>(other + vertex * stride + column<W, N>(columns, i));
        acc[i] += (key == own[i]) ? value : splat<A, W>(A(0));
      } else {
        acc[i] = R::template join<A, W>(acc[i], value);
      }
    }
  };

  const auto prefetch = [&](int32_t vertex) __attribute__((always_inline)) {
    constexpr int64_t kBytes = N * W * sizeof(T);
    const char* row = reinterpret_cast<const char*>(x + vertex * stride + columns.start);
#pragma GCC unroll 16
    for (int64_t line = 0; line < kBytes; line += kLine) __builtin_prefetch(row + line, 0, 3);
    // The tile's end may lie one line further where rows are not aligned to lines.
    if constexpr (kBytes % kLine != 0 || kBytes < kLine) __builtin_prefetch(row + kBytes - 1, 0, 3);
  };

  int64_t k = part.first;
  if (neighbours) {
    const int64_t ahead = part.fetched - kAhead;
    const int64_t stop = part.last < ahead ? part.last : ahead;
    for (; k < stop; ++k) {
      prefetch(neighbours[k + kAhead]);
      step(k);
    }
  }
  for (; k < part.last; ++k) step(k);

#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) {
    to.template store<W>(head * rows.width + column<W, N>(columns, i), acc[i]);
  }
}

// Vectors in a tile. Sums get all registers, so that an index is read once for up to 256 columns;
// the others, which hold more values per column, and float64 make do with less (and compile in half the time).
template <class R, class T>
constexpr int tile_vectors() {
  constexpr bool kLean = (R::kOp == Op::kSum || R::kOp == Op::kWeightedSum) && sizeof(AccOf<T>) == sizeof(float);
  return kLean || DORYLAX_REGISTERS < 4 ? DORYLAX_REGISTERS : 4;
}

template <class R, class T, int W, class To>
DORYLAX_INLINE void reduce_vectors(const Rows& rows, int64_t row, int64_t head, const Part<AccOf<T>>& part, int n,
                                   const Columns& columns, const To& to) {
  switch (n) {
#define DORYLAX_CASE(N)                                                                  \
  case N:                                                                                \
    if constexpr (N <= tile_vectors<R, T>())                                               \
      reduce_tile<R, T, W, N>(rows, row, head, part, columns, to);                       \
    break;
    DORYLAX_CASE(1)
    DORYLAX_CASE(2)
    DORYLAX_CASE(3)
    DORYLAX_CASE(4)
    DORYLAX_CASE(5)
    DORYLAX_CASE(6)
    DORYLAX_CASE(7)
    DORYLAX_CASE(8)
    DORYLAX_CASE(9)
    DORYLAX_CASE(10)
    DORYLAX_CASE(11)
    DORYLAX_CASE(12)
    DORYLAX_CASE(13)
    DORYLAX_CASE(14)
    DORYLAX_CASE(15)
    DORYLAX_CASE(16)
#undef DORYLAX_CASE
  }
}

// One head of one row, whatever its width: full vectors where they fit, else the widest power of two that fits.
template <class R, class T, class To>
DORYLAX_INLINE void reduce_head(const Rows& rows, int64_t width, int64_t row, int64_t head,
                                const Part<AccOf<T>>& part, const To& to) {
  constexpr int W = DORYLAX_BYTES / sizeof(AccOf<T>);
  if (width >= W) {
    const int64_t vectors = (width + W - 1) / W;
    const int64_t tiles = (vectors + tile_vectors<R, T>() - 1) / tile_vectors<R, T>();
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = vectors * t / tiles, end = vectors * (t + 1) / tiles;
      const int64_t final = end == vectors ? width - W : (end - 1) * W;
      reduce_vectors<R, T, W>(rows, row, head, part, static_cast<int>(end - begin), {begin * W, final}, to);
    }
    return;
  }
#define DORYLAX_NARROW(L)                                                                                  \
  if constexpr (L < W) {                                                                                   \
    if (width >= L) {                                                                                      \
      if (width == L)                                                                                      \
        return reduce_tile<R, T, L, 1>(rows, row, head, part, {0, 0}, to);                               \
      return reduce_tile<R, T, L, 2>(rows, row, head, part, {0, width - L}, to);                         \
    }                                                                                                      \
  }
  DORYLAX_NARROW(8)
  DORYLAX_NARROW(4)
  DORYLAX_NARROW(2)
  DORYLAX_NARROW(1)
#undef DORYLAX_NARROW
}

// Heads matter only where each has its own weight; else a row is one head of width H * F. Not inlined: all widths are
// compiled into it, once for all its callers.
template <class R, class T, class To>
__attribute__((noinline)) void reduce_part(const Rows& given, int64_t row, const Part<AccOf<T>>& part, const To& to) {
  if constexpr (R::kOp == Op::kWeightedSum) {
    for (int64_t head = 0; head < given.heads; ++head) {
      reduce_head<R, T>(given, given.width, row, head, part, to);
    }
  } else {
    reduce_head<R, T>(given, given.heads * given.width, row, 0, part, to);
  }
}

template <class R, class T>
void reduce_span(const Rows& rows, int64_t row, int64_t first, int64_t last, bool resume, void* partial) {
  using E = typename EntriesOf<R>::type;
  auto* sums = static_cast<AccOf<T>*>(partial);
  const Part<AccOf<T>> part = {first, last, last, resume ? sums : nullptr};
  reduce_part<E, T>(rows, row, part, AsAccumulated<AccOf<T>>{sums});
}

template <class R, class T>
void combine_spans(const Rows& rows, int64_t row, const void* partials, int64_t count) {
  using A = AccOf<T>;
  const int64_t stride = rows.heads * rows.width;
  const A* from = static_cast<const A*>(partials);
  const auto to = destination<R, T>(rows, row);
  for (int64_t j = 0; j < stride; ++j) {
    Vec<double, 1> acc = {double(from[j])};
    for (int64_t i = 1; i < count; ++i) {
      Vec<double, 1> next = {double(from[i * stride + j])};
      acc = R::template join<double, 1>(acc, next);
    }
    Vec<A, 1> joined = {A(acc[0])};
    to.template store<1>(j, joined);
  }
}

// Whole rows.
template <class R, class T>
void reduce_rows(const Rows& rows, int64_t begin, int64_t end) {
  using E = typename EntriesOf<R>::type;
  constexpr bool kZero = R::kOp != Op::kScaledSum;  // whether a row without entries is 0
  const int64_t stride = rows.heads * rows.width;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = rows.offsets[row], last = rows.offsets[row + 1];
    if (last - first > kSpan) continue;
    if (kZero && first == last) {
      std::memset(static_cast<OutOf<T>*>(rows.out) + row * stride, 0, stride * sizeof(OutOf<T>));
    } else {
      // Prefetching runs on into the following rows, whose indices follow, but never past the last index of all.
      const Part<AccOf<T>> part = {first, last, rows.num_entries, nullptr};
      reduce_part<E, T>(rows, row, part, destination<R, T>(rows, row));
    }
  }
}

// Rows ahead of which a sweep prefetches where a row's entries begin and its accumulators, which lie far apart.
constexpr int64_t kRowsAhead = 8;

template <class A>
DORYLAX_INLINE void prefetch_row(const Rows& rows, int64_t first, const A* sums) {
  __builtin_prefetch(rows.neighbours + first, 0, 3);
  __builtin_prefetch(rows.neighbours + first + kLine / sizeof(int32_t), 0, 3);
  const char* from = reinterpret_cast<const char*>(sums);
  const char* to = reinterpret_cast<const char*>(sums + rows.heads * rows.width);
  for (; from < to + kLine - 1; from += kLine) __builtin_prefetch(from, 1, 3);
}

// What one sweep adds to rows; until the last one, `out` holds their accumulators.
template <class R, class T>
void sweep_rows(const Rows& rows, int64_t begin, int64_t end, const Sweep& sweep) {
  using E = typename EntriesOf<R>::type;
  using A = AccOf<T>;
  static_assert(sizeof(A) == sizeof(OutOf<T>));
  constexpr bool kFinish = R::kOp == Op::kScaledSum;
  const int64_t stride = rows.heads * rows.width;
  const int64_t* starts = sweep.first ? rows.offsets : sweep.positions;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t all = rows.offsets[row], end_of_row = rows.offsets[row + 1];
    if (end_of_row - all > kSpan) {
      sweep.positions[row] = all;
      continue;
    }
    A* sums = static_cast<A*>(rows.out) + row * stride;
    if (row + kRowsAhead < end) prefetch_row(rows, starts[row + kRowsAhead], sums + kRowsAhead * stride);
    const int64_t first = starts[row];
    const int64_t last = sweep.last ? end_of_row : sweep_end(rows.neighbours, first, end_of_row, sweep.until);
    sweep.positions[row] = last;
    if (!kFinish && all == end_of_row) {
      if (sweep.first) std::memset(sums, 0, stride * sizeof(A));
      continue;
    }
    const Part<A> part = {first, last, last, sweep.first ? nullptr : sums};
    if (kFinish && sweep.last) {
      reduce_part<E, T>(rows, row, part, destination<R, T>(rows, row));
    } else if (sweep.first || first != last) {
      reduce_part<E, T>(rows, row, part, AsAccumulated<A>{sums});
    }
  }
}

// Accumulators of a narrower result have no place to wait in.
template <class R, class T>
constexpr SweepRows find_sweep() {
  if constexpr (sizeof(AccOf<T>) == sizeof(OutOf<T>)) {
    return sweep_rows<R, T>;
  } else {
    return nullptr;
  }
}
template <class R, class T>
constexpr SweepRows sweep_rows_or_null = find_sweep<R, T>();

// --- One result per entry --------------------------------------------------------------------------------------------

template <class T, int W>
DORYLAX_INLINE AccOf<T> dot(const T* a, const T* b, int64_t width) {
  using A = AccOf<T>;
  Vec<A, W> acc0 = splat<A, W>(A(0)), acc1 = acc0;
  int64_t f = 0;
  for (; f + 2 * W <= width; f += 2 * W) {
    acc0 += Element<T>::template load<W>(a + f) * Element<T>::template load<W>(b + f);
    acc1 += Element<T>::template load<W>(a + f + W) * Element<T>::template load<W>(b + f + W);
  }
  for (; f + W <= width; f += W) acc0 += Element<T>::template load<W>(a + f) * Element<T>::template load<W>(b + f);
  acc0 += acc1;
  A total = A(0);
  for (int i = 0; i < W; ++i) total += acc0[i];
  for (; f < width; ++f) total += Element<T>::template load<1>(a + f)[0] * Element<T>::template load<1>(b + f)[0];
  return total;
}

template <class T>
void dot_rows(const Rows& rows, int64_t begin, int64_t end, int64_t first, int64_t last) {
  constexpr int W = DORYLAX_BYTES / sizeof(AccOf<T>);
  const int64_t stride = rows.heads * rows.width;
  const T* x = static_cast<const T*>(rows.x);
  T* out = static_cast<T*>(rows.out);
  for (int64_t row = begin; row < end; ++row) {
    const T* own = static_cast<const T*>(rows.own) + row * stride;
    const int64_t from = rows.offsets[row] > first ? rows.offsets[row] : first;
    const int64_t to = rows.offsets[row + 1] < last ? rows.offsets[row + 1] : last;
    for (int64_t k = from; k < to; ++k) {
      if (k + kAhead < rows.num_entries) {
        const char* next = reinterpret_cast<const char*>(x + rows.neighbours[k + kAhead] * stride);
        for (int64_t line = 0; line < stride * int64_t(sizeof(T)); line += kLine) __builtin_prefetch(next + line, 0, 3);
      }
      const T* near = x + rows.neighbours[k] * stride;
      for (int64_t h = 0; h < rows.heads; ++h) {
        const T *a = own + h * rows.width, *b = near + h * rows.width;
        const AccOf<T> total = rows.width >= W   ? dot<T, W>(a, b, rows.width)
                               : rows.width >= 4 ? dot<T, 4>(a, b, rows.width)
                                                 : dot<T, 1>(a, b, rows.width);
        Vec<AccOf<T>, 1> one = {total};
        Element<T>::template store<1>(out + (k - rows.first_entry) * rows.heads + h, one);
      }
    }
  }
}

template <class T>
void expand_rows(const Rows& rows, int64_t begin, int64_t end, int64_t first, int64_t last) {
  const int64_t stride = rows.heads * rows.width, bytes = stride * sizeof(T);
  const T* x = static_cast<const T*>(rows.x);
  T* out = static_cast<T*>(rows.out);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = rows.offsets[row] > first ? rows.offsets[row] : first;
    const int64_t to = rows.offsets[row + 1] < last ? rows.offsets[row + 1] : last;
    for (int64_t k = from; k < to; ++k) {
      const int64_t vertex = rows.neighbours ? rows.neighbours[k] : row;
      if (rows.neighbours && k + kAhead < rows.num_entries) {
        const char* next = reinterpret_cast<const char*>(x + rows.neighbours[k + kAhead] * stride);
        for (int64_t line = 0; line < bytes; line += kLine) __builtin_prefetch(next + line, 0, 3);
      }
      std::memcpy(out + (k - rows.first_entry) * stride, x + vertex * stride, bytes);
    }
  }
}

#include "attention.inl"

#define DORYLAX_PER_DTYPE(F, ...) {F<__VA_ARGS__ float>, F<__VA_ARGS__ double>, F<__VA_ARGS__ BFloat16>}
#define DORYLAX_COMMA ,
#define DORYLAX_PER_OP(F)                                                                                 \
  {DORYLAX_PER_DTYPE(F, Sum DORYLAX_COMMA), DORYLAX_PER_DTYPE(F, WeightedSum DORYLAX_COMMA),              \
   DORYLAX_PER_DTYPE(F, Extremum<true> DORYLAX_COMMA), DORYLAX_PER_DTYPE(F, Extremum<false> DORYLAX_COMMA), \
   DORYLAX_PER_DTYPE(F, SelectSum DORYLAX_COMMA),                                                         \
   {F<ScaledSum, float>, F<ScaledSum, double>, F<ScaledSum, BFloat16>, F<ScaledSum, StoredBFloat16>}}

#define DORYLAX_PER_ATTEND(F)                                                                \
  {DORYLAX_PER_DTYPE(F, Attend::kForward DORYLAX_COMMA), DORYLAX_PER_DTYPE(F, Attend::kSaving DORYLAX_COMMA), \
   DORYLAX_PER_DTYPE(F, Attend::kBackward DORYLAX_COMMA)}

#define DORYLAX_STRING_(S) #S
#define DORYLAX_STRING(S) DORYLAX_STRING_(S)

const Kernels kTable = {
    DORYLAX_STRING(DORYLAX_ISA), DORYLAX_PER_OP(reduce_rows),     DORYLAX_PER_OP(sweep_rows_or_null), DORYLAX_PER_OP(reduce_span),
    DORYLAX_PER_OP(combine_spans), DORYLAX_PER_DTYPE(dot_rows, ), DORYLAX_PER_DTYPE(expand_rows, ),
    DORYLAX_PER_ATTEND(attend_rows), DORYLAX_PER_ATTEND(attend_span), DORYLAX_PER_ATTEND(attend_combine),
    DORYLAX_PER_DTYPE(attend_prepare, ),
};

}  // namespace
}  // namespace DORYLAX_ISA
}  // namespace dorylax
