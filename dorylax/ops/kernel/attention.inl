// Additive attention, forward and backward, without an array over the edges. Included by kernels.inl, inside its namespace.
//
// For a target v with in-neighbours u (and itself, where its implicit loop takes part), head by head,
//
//   x_uv = s_u + t_v,  w_uv = exp(leaky(x_uv) - shift_v),  scale_v = 1 / sum over u of w_uv,  a_uv = w_uv scale_v,
//   y_v  = sum over u of a_uv z_u                                   (Velickovic et al., ICLR 2018, equations 1 to 4),
//
// with shift_v the largest leaky(x_uv). Its derivative with respect to t_v is, with l_uv = leaky'(x_uv),
//
//   tilt_v = sum over u of a_uv l_uv (z_u - y_v),
//
// which the forward pass saves for the backward pass, as it has z_u at hand: the cotangent of t_v is ct_v . tilt_v. What is
// left for the backward pass are the out-edges of each source u, with delta_v = ct_v . y_v,
//
//   cotangent of z_u: sum over v of a_uv ct_v,
//   cotangent of s_u: z_u . (sum over v of a_uv l_uv ct_v) - sum over v of a_uv l_uv delta_v.
//
// Both passes are the same loop: weights of a chunk of entries, then weighted sums of the neighbours' rows in registers,
// with two weights per entry and head. Chunks make the softmax of a row of any length one pass over its neighbours' rows:
// where a chunk raises the maximum, what was summed before is scaled down (Milakov & Gimelshein, "Online normalizer
// calculation for softmax", 2018).

// Entries whose weights are at hand at once, times heads; and heads that are computed together.
constexpr int64_t kWeights = 2048;
constexpr int64_t kChunk = 256;
constexpr int64_t kHeads = 64;

// --- The exponential function ----------------------------------------------------------------------------------------
// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2, with ln 2 in two parts so that n ln 2 is subtracted without
// rounding (Cody & Waite, "Software Manual for the Elementary Functions", 1980, chapter 6), and exp(r) the Taylor
// polynomial whose remainder lies below a tenth of a unit in the last place.

template <class A>
struct Exponential;

template <>
struct Exponential<float> {
  using Bits = uint32_t;
  static constexpr float kLowest = -87.33654f;  // log of the least normal number; below it the result is 0
  static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  static constexpr float kHigh = 0.693359375f, kLow = -2.12194440e-4f;
  static constexpr int kMantissa = 23, kBias = 127, kDegree = 7;
};

template <>
struct Exponential<double> {
  using Bits = uint64_t;
  static constexpr double kLowest = -708.396418532264;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kHigh = 6.93145751953125e-1, kLow = 1.42860682030941723212e-6;
  static constexpr int kMantissa = 52, kBias = 1023, kDegree = 13;
};

// For x <= 0, which is all that a softmax needs; 0 for -inf, NaN for NaN.
template <class A, int W>
DORYLAX_INLINE Vec<A, W> exponential(Vec<A, W> x) {
  using E = Exponential<A>;
  using Bits = Vec<typename E::Bits, W>;
  constexpr A kInverse[] = {A(1),           A(1),           A(1) / 2,        A(1) / 6,         A(1) / 24,
                            A(1) / 120,     A(1) / 720,     A(1) / 5040,     A(1) / 40320,     A(1) / 362880,
                            A(1) / 3628800, A(1) / 39916800, A(1) / 479001600, A(1) / 6227020800};
  const Vec<A, W> low = splat<A, W>(E::kLowest);
  const Vec<A, W> at = (x < low) ? low : x;  // a NaN stays
  const Vec<A, W> rounded = at * A(1.44269504088896340736) + E::kRound;
  const Vec<A, W> n = rounded - E::kRound;
  const Vec<A, W> r = (at - n * E::kHigh) - n * E::kLow;
  Vec<A, W> p = splat<A, W>(kInverse[E::kDegree]);
#pragma GCC unroll 16
  for (int i = E::kDegree - 1; i >= 0; --i) p = p * r + kInverse[i];
  Bits bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  bits = (bits + E::kBias) << E::kMantissa;  // the bits of kRound above the integer are shifted out
  Vec<A, W> power;
  std::memcpy(&power, &bits, sizeof(power));
  return (x < low) ? splat<A, W>(A(0)) : p * power;
}

// --- Vectors over heads or columns ------------------------------------------------------------------------------------

template <int W>
struct Width {
  static constexpr int value = W;
};

// Calls body(Width<L>, column) so that vectors of L lanes cover columns [0, count); the last may overlap the one before, so
// the body must give the same for a column each time.
template <int W, class Body>
DORYLAX_INLINE void cover(int64_t count, const Body& body) {
  if (count >= W) {
    int64_t c = 0;
    for (; c + W <= count; c += W) body(Width<W>{}, c);
    if (c < count) body(Width<W>{}, count - W);
  } else if constexpr (W > 1) {
    cover<W / 2>(count, body);
  }
}

template <class A, int W>
DORYLAX_INLINE Vec<A, W> leaky(Vec<A, W> x, A slope) {
  // An edge that is left out stays out whatever the slope: 0 * -inf would be NaN.
  const Vec<A, W> below = (x == -A(__builtin_inf())) ? x : x * slope;
  return (x >= splat<A, W>(A(0))) ? x : below;
}

template <class A, int W>
DORYLAX_INLINE Vec<A, W> leaky_slope(Vec<A, W> x, A slope) {
  return (x >= splat<A, W>(A(0))) ? splat<A, W>(A(1)) : splat<A, W>(slope);
}

// What is subtracted before exponentials are taken: the maximum, or 0 where every score is -inf.
template <class A, int W>
DORYLAX_INLINE Vec<A, W> finite(Vec<A, W> largest) {
  return (largest == -A(__builtin_inf())) ? splat<A, W>(A(0)) : largest;
}

// What is known of a row, or of a part of it: [3 H + 2 H F] accumulators.
template <class A>
struct State {
  A* largest;    // [H], forward: the largest score
  A* total;      // [H], forward: sum of w
  A* tilted;     // [H], forward: sum of w l; backward: sum of a l delta
  A* sum;        // [H, F], sum of w (or a) times the neighbour's row
  A* tilt;       // [H, F], sum of w l (or a l) times the neighbour's row; not used by kForward

  State(A* from, int64_t heads, int64_t width)
      : largest(from),
        total(from + heads),
        tilted(from + 2 * heads),
        sum(from + 3 * heads),
        tilt(from + (3 + width) * heads) {}
};

// A chunk of a row's entries: who they are, and their weights for heads [head, head + heads).
template <class A>
struct Chunk {
  int32_t vertex[kChunk + 1];
  A weight[kWeights];
  A slanted[kWeights];  // weight times leaky'
  A factor[kHeads];     // what earlier chunks' sums are multiplied by
  int64_t count;
  int64_t head;
  int64_t heads;
  const int32_t* ahead;  // the neighbour kAhead entries after entry j is ahead[j], while j < num_ahead
  int64_t num_ahead;
};

DORYLAX_INLINE void prefetch_row(const char* from, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += kLine) __builtin_prefetch(from + line, 0, 3);
  __builtin_prefetch(from + bytes - 1, 0, 3);  // a row that is not aligned to lines ends one further
}

// --- Weighted sums of neighbours' rows -------------------------------------------------------------------------------

// Heads [head, head + G) of the chunk, N vectors of each from `columns` on, with K weights per entry and head.
template <class T, int W, int N, int G, int K>
DORYLAX_INLINE void sum_tile(const T* x, int64_t stride, int64_t width, const Chunk<AccOf<T>>& chunk, bool fresh,
                             int64_t head, const Columns& columns, AccOf<T>* sum, AccOf<T>* tilt) {
  using A = AccOf<T>;
  Vec<A, W> acc[K][G][N];
  const int64_t place = (chunk.head + head) * width;
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const int64_t at = place + g * width + column<W, N>(columns, i);
      const A factor = chunk.factor[head + g];
      acc[0][g][i] = fresh ? splat<A, W>(A(0)) : factor * Element<A>::template load<W>(sum + at);
      if constexpr (K == 2) acc[1][g][i] = fresh ? splat<A, W>(A(0)) : factor * Element<A>::template load<W>(tilt + at);
    }
  }
  const int64_t bytes = ((G - 1) * width + columns.last + W - columns.start) * int64_t(sizeof(T));
  for (int64_t j = 0; j < chunk.count; ++j) {
    if (j < chunk.num_ahead) {
      prefetch_row(reinterpret_cast<const char*>(x + chunk.ahead[j] * stride + place + columns.start), bytes);
    }
    const T* from = x + chunk.vertex[j] * stride + place;
    const A* weight = chunk.weight + j * chunk.heads + head;
    const A* slanted = chunk.slanted + j * chunk.heads + head;
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) {
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) {
        const Vec<A, W> value = Element<T>::template load<W>(from + g * width + column<W, N>(columns, i));
        acc[0][g][i] += weight[g] * value;
        if constexpr (K == 2) acc[1][g][i] += slanted[g] * value;
      }
    }
  }
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const int64_t at = place + g * width + column<W, N>(columns, i);
      Element<A>::template store<W>(sum + at, acc[0][g][i]);
      if constexpr (K == 2) Element<A>::template store<W>(tilt + at, acc[1][g][i]);
    }
  }
}

// All heads of the chunk, each of N vectors: several at a time, as many as there are registers for.
template <class T, int W, int N, int K, int G>
DORYLAX_INLINE int64_t sum_heads(const T* x, int64_t stride, int64_t width, const Chunk<AccOf<T>>& chunk, bool fresh,
                                 int64_t head, AccOf<T>* sum, AccOf<T>* tilt) {
  if constexpr (G * N * K <= DORYLAX_REGISTERS) {
    for (; head + G <= chunk.heads; head += G) {
      sum_tile<T, W, N, G, K>(x, stride, width, chunk, fresh, head, {0, width - W}, sum, tilt);
    }
  }
  if constexpr (G > 1) head = sum_heads<T, W, N, K, G / 2>(x, stride, width, chunk, fresh, head, sum, tilt);
  return head;
}

template <class T, int W, int K>
DORYLAX_INLINE void sum_wide(const T* x, int64_t stride, int64_t width, const Chunk<AccOf<T>>& chunk, bool fresh,
                             AccOf<T>* sum, AccOf<T>* tilt) {
  constexpr int64_t kMost = DORYLAX_REGISTERS / K;
  const int64_t vectors = (width + W - 1) / W, tiles = (vectors + kMost - 1) / kMost;
  for (int64_t head = 0; head < chunk.heads; ++head) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = vectors * t / tiles, end = vectors * (t + 1) / tiles;
      const Columns columns = {begin * W, end == vectors ? width - W : (end - 1) * W};
      switch (end - begin) {
#define DORYLAX_CASE(N)                                                                                          \
  case N:                                                                                                      \
    if constexpr (N <= kMost) sum_tile<T, W, N, 1, K>(x, stride, width, chunk, fresh, head, columns, sum, tilt); \
    break;
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
  }
}

// Adds the chunk's weighted rows to `sum` (and `tilt`), or begins them if `fresh`.
template <class T, int K, int W>
__attribute__((noinline)) void sum_chunk(const T* x, int64_t stride, int64_t width, const Chunk<AccOf<T>>& chunk,
                                         bool fresh, AccOf<T>* sum, AccOf<T>* tilt) {
  constexpr bool kFull = W == DORYLAX_BYTES / sizeof(AccOf<T>);
  if (width == W) {
    sum_heads<T, W, 1, K, 8>(x, stride, width, chunk, fresh, 0, sum, tilt);
  } else if (width > W && width <= 2 * W) {
    sum_heads<T, W, 2, K, (kFull ? 4 : 2)>(x, stride, width, chunk, fresh, 0, sum, tilt);
  } else if (width > W) {
    if constexpr (kFull) sum_wide<T, W, K>(x, stride, width, chunk, fresh, sum, tilt);
  } else if constexpr (W > 1) {
    sum_chunk<T, K, W / 2>(x, stride, width, chunk, fresh, sum, tilt);
  }
}

// --- Weights of a chunk ----------------------------------------------------------------------------------------------

// Lanes for heads: eight are what most models have.
constexpr int kHeadLanes = 8;

// Scores of in-neighbours, their maximum, and w; scales what is known of earlier chunks.
template <Attend P, class T>
DORYLAX_INLINE void weigh_sources(const Attention& call, int64_t row, Chunk<AccOf<T>>& chunk, bool fresh,
                                  const State<AccOf<T>>& state) {
  using A = AccOf<T>;
  const T* source = static_cast<const T*>(call.source) + chunk.head;
  const T* target = static_cast<const T*>(call.target) + row * call.heads + chunk.head;
  const A slope = A(call.slope);
  A largest[kHeads], total[kHeads], tilted[kHeads];
  cover<kHeadLanes>(chunk.heads, [&](auto lanes, int64_t h) __attribute__((always_inline)) {
    constexpr int L = decltype(lanes)::value;
    using V = Vec<A, L>;
    const V own = Element<T>::template load<L>(target + h), none = splat<A, L>(-A(__builtin_inf()));
    V before = fresh ? none : Element<A>::template load<L>(state.largest + chunk.head + h);
    V most = before;
    for (int64_t j = 0; j < chunk.count; ++j) {
      if (j < chunk.num_ahead) __builtin_prefetch(source + chunk.ahead[j] * call.heads + h, 0, 3);
      const V x = Element<T>::template load<L>(source + chunk.vertex[j] * call.heads + h) + own;
      const V score = leaky<A, L>(x, slope);
      most = (score > most) ? score : most;
      Element<A>::template store<L>(chunk.weight + j * chunk.heads + h, x);
    }
    const V shift = finite<A, L>(most);
    V sum = splat<A, L>(A(0)), slanted_sum = sum;
    if (!fresh) {
      const V factor = exponential<A, L>(before - shift);
      Element<A>::template store<L>(chunk.factor + h, factor);
      sum = factor * Element<A>::template load<L>(state.total + chunk.head + h);
      if constexpr (P == Attend::kSaving) {
        slanted_sum = factor * Element<A>::template load<L>(state.tilted + chunk.head + h);
      }
    }
    for (int64_t j = 0; j < chunk.count; ++j) {
      const V x = Element<A>::template load<L>(chunk.weight + j * chunk.heads + h);
      const V w = exponential<A, L>(leaky<A, L>(x, slope) - shift);
      sum += w;
      Element<A>::template store<L>(chunk.weight + j * chunk.heads + h, w);
      if constexpr (P == Attend::kSaving) {
        const V slanted = w * leaky_slope<A, L>(x, slope);
        slanted_sum += slanted;
        Element<A>::template store<L>(chunk.slanted + j * chunk.heads + h, slanted);
      }
    }
    // Not into the state yet: a later vector may overlap this one, and must read what this one has read.
    Element<A>::template store<L>(largest + h, most);
    Element<A>::template store<L>(total + h, sum);
    Element<A>::template store<L>(tilted + h, slanted_sum);
  });
  std::memcpy(state.largest + chunk.head, largest, chunk.heads * sizeof(A));
  std::memcpy(state.total + chunk.head, total, chunk.heads * sizeof(A));
  std::memcpy(state.tilted + chunk.head, tilted, chunk.heads * sizeof(A));
}

// Rows of `packed`: what the backward pass reads of a target, side by side.
enum Packed { kTarget, kShift, kScale, kDelta, kPacked };

// a of out-neighbours, from what the forward pass has saved.
template <class T>
DORYLAX_INLINE void weigh_targets(const Attention& call, int64_t row, Chunk<AccOf<T>>& chunk, bool fresh,
                                  const State<AccOf<T>>& state) {
  using A = AccOf<T>;
  const int64_t heads = call.heads, stride = kPacked * heads;
  const A* packed = static_cast<const A*>(call.packed) + chunk.head;
  const T* source = static_cast<const T*>(call.source) + row * heads + chunk.head;
  const A slope = A(call.slope);
  A tilted[kHeads];
  cover<kHeadLanes>(chunk.heads, [&](auto lanes, int64_t h) __attribute__((always_inline)) {
    constexpr int L = decltype(lanes)::value;
    using V = Vec<A, L>;
    const V own = Element<T>::template load<L>(source + h);
    V sum = fresh ? splat<A, L>(A(0)) : Element<A>::template load<L>(state.tilted + chunk.head + h);
    for (int64_t j = 0; j < chunk.count; ++j) {
      if (j < chunk.num_ahead) {
        prefetch_row(reinterpret_cast<const char*>(packed + chunk.ahead[j] * stride), stride * int64_t(sizeof(A)));
      }
      const A* of = packed + chunk.vertex[j] * stride + h;
      const V x = own + Element<A>::template load<L>(of + kTarget * heads);
      const V shift = Element<A>::template load<L>(of + kShift * heads);
      const V w = exponential<A, L>(leaky<A, L>(x, slope) - shift) * Element<A>::template load<L>(of + kScale * heads);
      const V slanted = w * leaky_slope<A, L>(x, slope);
      sum += slanted * Element<A>::template load<L>(of + kDelta * heads);
      Element<A>::template store<L>(chunk.weight + j * chunk.heads + h, w);
      Element<A>::template store<L>(chunk.slanted + j * chunk.heads + h, slanted);
    }
    Element<A>::template store<L>(tilted + h, sum);
    Element<A>::template store<L>(chunk.factor + h, splat<A, L>(A(1)));
  });
  std::memcpy(state.tilted + chunk.head, tilted, chunk.heads * sizeof(A));
}

// --- Rows ------------------------------------------------------------------------------------------------------------

// Entries [first, last) of a row, and its implicit loop if `loop`.
template <Attend P, class T>
DORYLAX_INLINE void attend_entries(const Attention& call, int64_t row, int64_t first, int64_t last, bool loop,
                                   Chunk<AccOf<T>>& chunk, const State<AccOf<T>>& state) {
  constexpr bool kBack = P == Attend::kBackward;
  constexpr int W = DORYLAX_BYTES / sizeof(AccOf<T>);
  const int64_t stride = call.heads * call.width;
  const T* x = static_cast<const T*>(kBack ? call.ct : call.z);
  for (chunk.head = 0; chunk.head < call.heads; chunk.head += kHeads) {
    chunk.heads = call.heads - chunk.head < kHeads ? call.heads - chunk.head : kHeads;
    // The loop has a place of its own, beside as many entries as there are places for in every chunk.
    const int64_t places = kWeights / chunk.heads - 1, most = places < kChunk ? places : kChunk;
    bool fresh = true, own = loop;
    for (int64_t k = first; k < last || own; fresh = own = false) {
      const int64_t entries = last - k < most ? last - k : most;
      chunk.count = entries;
      std::memcpy(chunk.vertex, call.neighbours + k, entries * sizeof(int32_t));
      if (own) chunk.vertex[chunk.count++] = static_cast<int32_t>(row);
      chunk.ahead = call.neighbours + k + kAhead;
      const int64_t left = call.num_entries - kAhead - k;
      chunk.num_ahead = left < entries ? left : entries;
      if constexpr (kBack) {
        weigh_targets<T>(call, row, chunk, fresh, state);
      } else {
        weigh_sources<P, T>(call, row, chunk, fresh, state);
      }
      sum_chunk<T, P == Attend::kForward ? 1 : 2, W>(x, stride, call.width, chunk, fresh, state.sum, state.tilt);
      k += entries;
    }
    if (fresh) {
      for (int64_t h = chunk.head; h < chunk.head + chunk.heads; ++h) {
        state.largest[h] = -AccOf<T>(__builtin_inf());
        state.total[h] = state.tilted[h] = 0;
      }
      std::memset(state.sum + chunk.head * call.width, 0, chunk.heads * call.width * sizeof(AccOf<T>));
      std::memset(state.tilt + chunk.head * call.width, 0, chunk.heads * call.width * sizeof(AccOf<T>));
    }
  }
}

// The row's results from what is known of all its entries.
template <Attend P, class T>
DORYLAX_INLINE void finish_row(const Attention& call, int64_t row, const State<AccOf<T>>& state) {
  using A = AccOf<T>;
  constexpr int W = DORYLAX_BYTES / sizeof(A);
  const int64_t width = call.width;
  for (int64_t h = 0; h < call.heads; ++h) {
    const int64_t place = (row * call.heads + h) * width;
    const A *sum = state.sum + h * width, *tilt = state.tilt + h * width;
    T* out = static_cast<T*>(call.out) + place;
    if constexpr (P == Attend::kBackward) {
      const T* z = static_cast<const T*>(call.z) + place;
      A product = A(0);
      cover<W>(width, [&](auto lanes, int64_t f) __attribute__((always_inline)) {
        constexpr int L = decltype(lanes)::value;
        Element<T>::template store<L>(out + f, Element<A>::template load<L>(sum + f));
      });
      if constexpr (sizeof(T) == sizeof(A)) {
        product = width >= W ? dot<A, W>(z, tilt, width) : dot<A, 1>(z, tilt, width);
      } else {
        for (int64_t f = 0; f < width; ++f) product += Element<T>::template load<1>(z + f)[0] * tilt[f];
      }
      Vec<A, 1> cotangent = {product - state.tilted[h]};
      Element<T>::template store<1>(static_cast<T*>(call.out_source) + row * call.heads + h, cotangent);
    } else {
      const A total = state.total[h], scale = total == A(0) ? A(0) : A(1) / total;
      const A slanted = state.tilted[h] * scale;
      T* out_tilt = P == Attend::kSaving ? static_cast<T*>(call.out_tilt) + place : nullptr;
      cover<W>(width, [&](auto lanes, int64_t f) __attribute__((always_inline)) {
        constexpr int L = decltype(lanes)::value;
        const Vec<A, L> y = Element<A>::template load<L>(sum + f) * scale;
        Element<T>::template store<L>(out + f, y);
        if constexpr (P == Attend::kSaving) {
          Element<T>::template store<L>(out_tilt + f, Element<A>::template load<L>(tilt + f) * scale - slanted * y);
        }
      });
      if constexpr (P == Attend::kSaving) {
        const A largest = state.largest[h];
        static_cast<A*>(call.out_shift)[row * call.heads + h] = largest == -A(__builtin_inf()) ? A(0) : largest;
        static_cast<A*>(call.out_scale)[row * call.heads + h] = scale;
      }
    }
  }
}

template <class T>
DORYLAX_INLINE bool has_loop(const Attention& call, int64_t row) {
  return Element<T>::template load<1>(static_cast<const T*>(call.loops) + row)[0] > 0;
}

// A part of one row; the first one has the loop.
template <Attend P, class T>
void attend_span(const Attention& call, int64_t row, int64_t first, int64_t last, void* partial) {
  Chunk<AccOf<T>> chunk;
  const bool loop = first == call.offsets[row] && has_loop<T>(call, row);
  const State<AccOf<T>> state(static_cast<AccOf<T>*>(partial), call.heads, call.width);
  attend_entries<P, T>(call, row, first, last, loop, chunk, state);
}

// Joins the parts of one row, in order and in float64.
template <Attend P, class T>
void attend_combine(const Attention& call, int64_t row, const void* partials, int64_t count) {
  using A = AccOf<T>;
  const int64_t heads = call.heads, width = call.width, size = attention_partial(heads, width);
  A* memory = const_cast<A*>(static_cast<const A*>(partials));
  const State<A> joined(memory, heads, width);  // the first part's place takes the whole
  const auto part = [&](int64_t i) { return State<A>(memory + i * size, heads, width); };
  for (int64_t h = 0; h < heads; ++h) {
    A largest = part(0).largest[h];
    if constexpr (P != Attend::kBackward) {
      for (int64_t i = 1; i < count; ++i) largest = part(i).largest[h] > largest ? part(i).largest[h] : largest;
    }
    const double shift = largest == -A(__builtin_inf()) ? 0.0 : double(largest);
    const auto factor = [&](int64_t i) {
      if constexpr (P == Attend::kBackward) return 1.0;
      Vec<double, 1> below = {double(part(i).largest[h]) - shift};
      return exponential<double, 1>(below)[0];
    };
    const auto join = [&](auto field) {
      double total = 0;
      for (int64_t i = 0; i < count; ++i) total += factor(i) * double(*field(part(i)));
      *field(joined) = A(total);
    };
    for (int64_t f = 0; f < width; ++f) {
      join([&](const State<A>& s) { return s.sum + h * width + f; });
      if constexpr (P != Attend::kForward) join([&](const State<A>& s) { return s.tilt + h * width + f; });
    }
    if constexpr (P != Attend::kBackward) join([&](const State<A>& s) { return s.total + h; });
    if constexpr (P != Attend::kForward) join([&](const State<A>& s) { return s.tilted + h; });
    joined.largest[h] = largest;
  }
  finish_row<P, T>(call, row, joined);
}

template <Attend P, class T>
void attend_rows(const Attention& call, int64_t begin, int64_t end) {
  using A = AccOf<T>;
  auto* memory = static_cast<A*>(__builtin_malloc(attention_partial(call.heads, call.width) * sizeof(A)));
  if (!memory) __builtin_trap();
  const State<A> state(memory, call.heads, call.width);
  Chunk<A> chunk;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = call.offsets[row], last = call.offsets[row + 1];
    if (last - first > kSpan) continue;
    attend_entries<P, T>(call, row, first, last, has_loop<T>(call, row), chunk, state);
    finish_row<P, T>(call, row, state);
  }
  __builtin_free(memory);
}

// What is computed per target, before the backward pass reads it along edges: delta, and the cotangent of t.
template <class T>
void attend_prepare(const Attention& call, int64_t begin, int64_t end) {
  using A = AccOf<T>;
  constexpr int W = DORYLAX_BYTES / sizeof(A);
  const int64_t heads = call.heads, width = call.width;
  for (int64_t row = begin; row < end; ++row) {
    A* packed = static_cast<A*>(call.packed) + row * kPacked * heads;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = row * heads + h, place = at * width;
      const T* ct = static_cast<const T*>(call.ct) + place;
      const auto product = [&](const void* with) {
        const T* other = static_cast<const T*>(with) + place;
        return width >= W ? dot<T, W>(ct, other, width) : width >= 4 ? dot<T, 4>(ct, other, width)
                                                                     : dot<T, 1>(ct, other, width);
      };
      Vec<A, 1> cotangent = {product(call.tilt)};
      Element<T>::template store<1>(static_cast<T*>(call.out_target) + at, cotangent);
      packed[kTarget * heads + h] = Element<T>::template load<1>(static_cast<const T*>(call.target) + at)[0];
      packed[kShift * heads + h] = static_cast<const A*>(call.shift)[at];
      packed[kScale * heads + h] = static_cast<const A*>(call.scale)[at];
      packed[kDelta * heads + h] = product(call.y);
    }
  }
}
