// Sorting and merging records on disk, a run at a time: a key of 64 bits, and bytes that go with it.
// Called by dorylax/graph/stream/sorting.py, which says what the arguments are and has the same in NumPy.
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace {

constexpr uint64_t kSign = uint64_t{1} << 63;  // keys are signed: with this bit flipped their bytes are in order
constexpr int kMostBits = 10;                  // of a digit: as many counters and streams as a core's caches follow

// Where digits of `bits` bits begin, so that every bit of `varying` is in one; bits that all keys share are left out.
std::vector<int> digits(uint64_t varying, int bits) {
  std::vector<int> shifts;
  while (varying) {
    const int shift = __builtin_ctzll(varying);
    shifts.push_back(shift);
    varying = shift + bits >= 64 ? 0 : varying & ~((uint64_t{1} << (shift + bits)) - 1);
  }
  return shifts;
}

// One pass of a radix sort, stable.
template <bool kCarries>
void distribute(int64_t n, int shift, uint64_t mask, int64_t* places, const uint64_t* keys, const uint32_t* carried,
                uint64_t* keys_out, uint32_t* carried_out) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = places[((keys[i] ^ kSign) >> shift) & mask]++;
    keys_out[place] = keys[i];
    if (kCarries) carried_out[place] = carried[i];
  }
}

template <int kWidth>
void gather(int64_t n, int64_t width, const char* values, const uint32_t* order, char* out) {
  const int64_t size = kWidth ? kWidth : width;
  for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * size, values + order[i] * size, size);
}

// A tournament of k runs: each inner node has who lost there, so a new head of one run is played along one path.
class Tournament {
 public:
  Tournament(int32_t k, const int64_t* const* keys, const int64_t* counts)
      : k_(k), keys_(keys), counts_(counts), at_(k, 0), loser_(k, 0) {
    std::vector<int32_t> winner(2 * k);
    for (int32_t i = 0; i < k; ++i) winner[k + i] = i;
    for (int32_t node = k - 1; node > 0; --node) {
      int32_t a = winner[2 * node], b = winner[2 * node + 1];
      if (before(b, a)) std::swap(a, b);
      winner[node] = a;
      loser_[node] = b;
    }
    first_ = k > 1 ? winner[1] : 0;
  }
  int32_t first() const { return first_; }
  int64_t at() const { return at_[first_]; }
  void advance() {
    int32_t run = first_;
    ++at_[run];
    for (int32_t node = (k_ + run) / 2; node > 0; node /= 2)
      if (before(loser_[node], run)) std::swap(loser_[node], run);
    first_ = run;
  }

 private:
  // Of equal keys that of the earlier run comes first; a run at its end after all others.
  bool before(int32_t a, int32_t b) const {
    const bool a_ended = at_[a] == counts_[a], b_ended = at_[b] == counts_[b];
    if (a_ended || b_ended) return a_ended == b_ended ? a < b : b_ended;
    const int64_t x = keys_[a][at_[a]], y = keys_[b][at_[b]];
    return x < y || (x == y && a < b);
  }
  int32_t k_;
  const int64_t* const* keys_;
  const int64_t* counts_;
  std::vector<int64_t> at_;
  std::vector<int32_t> loser_;
  int32_t first_;
};

template <int kWidth>
void merge(int32_t k, const int64_t* const* keys, const char* const* values, const int64_t* counts, int64_t width,
           int64_t* keys_out, char* values_out) {
  const int64_t size = kWidth < 0 ? width : kWidth;
  int64_t total = 0;
  for (int32_t i = 0; i < k; ++i) total += counts[i];
  Tournament runs(k, keys, counts);
  for (int64_t i = 0; i < total; ++i) {
    const int32_t run = runs.first();
    keys_out[i] = keys[run][runs.at()];
    if (kWidth) std::memcpy(values_out + i * size, values[run] + runs.at() * size, size);
    runs.advance();
  }
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int32_t dorylax_stream_abi() { return 1; }

// Sorts; whether the result is in the second pair of arrays. Without something to carry both pointers are null.
__attribute__((visibility("default"))) int32_t dorylax_stream_sort(int64_t n, uint64_t* keys, uint32_t* carried,
                                                                   uint64_t* keys_other, uint32_t* carried_other) {
  uint64_t any = 0, all = ~uint64_t{0};
  for (int64_t i = 0; i < n; ++i) any |= keys[i], all &= keys[i];
  int bits = 8;
  for (int more = 9; more <= kMostBits; ++more)
    if (digits(any & ~all, more).size() < digits(any & ~all, bits).size()) bits = more;
  const std::vector<int> shifts = digits(any & ~all, bits);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  std::vector<std::vector<int64_t>> places(shifts.size(), std::vector<int64_t>(mask + 1, 0));
  for (int64_t i = 0; i < n; ++i)
    for (size_t d = 0; d < shifts.size(); ++d) ++places[d][((keys[i] ^ kSign) >> shifts[d]) & mask];
  bool other = false;
  for (size_t d = 0; d < shifts.size(); ++d) {
    int64_t before = 0;
    for (int64_t& place : places[d]) {
      const int64_t count = place;
      place = before;
      before += count;
    }
    if (carried)
      distribute<true>(n, shifts[d], mask, places[d].data(), keys, carried, keys_other, carried_other);
    else
      distribute<false>(n, shifts[d], mask, places[d].data(), keys, nullptr, keys_other, nullptr);
    std::swap(keys, keys_other);
    std::swap(carried, carried_other);
    other = !other;
  }
  return other;
}

__attribute__((visibility("default"))) void dorylax_stream_gather(int64_t n, int64_t width, const char* values,
                                                                  const uint32_t* order, char* out) {
  if (width == 8)
    gather<8>(n, width, values, order, out);
  else if (width == 12)
    gather<12>(n, width, values, order, out);
  else
    gather<0>(n, width, values, order, out);
}

// Merges sorted runs; of equal keys those of earlier runs come first.
__attribute__((visibility("default"))) void dorylax_stream_merge(int32_t k, const int64_t* const* keys,
                                                                 const char* const* values, const int64_t* counts,
                                                                 int64_t width, int64_t* keys_out, char* values_out) {
  if (width == 0)
    merge<0>(k, keys, values, counts, width, keys_out, values_out);
  else if (width == 4)
    merge<4>(k, keys, values, counts, width, keys_out, values_out);
  else if (width == 8)
    merge<8>(k, keys, values, counts, width, keys_out, values_out);
  else
    merge<-1>(k, keys, values, counts, width, keys_out, values_out);
}

}  // extern "C"
