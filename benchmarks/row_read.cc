// What a machine reads at most: rows at the places that a gather reads, added into registers and nothing else.
//
// Built by benchmarks/gather.py with -O3 -march=native. No row is finished and nothing is written, so no gather over the
// same indices can be faster than this, unless it reads less.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

typedef float Lanes __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16, kBlock = 8192;

Lanes load(const float* from) {
  Lanes v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Reads rows of `width` floats at x[index[k]], begin <= k < end; `ahead` rows ahead are prefetched, none if 0.
float read_block(const float* x, int64_t width, const int32_t* index, int64_t begin, int64_t end, int64_t num_indices,
                 int64_t ahead) {
  Lanes sum[4] = {};
  float rest = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (ahead && k + ahead < num_indices) {
      const char* next = reinterpret_cast<const char*>(x + index[k + ahead] * width);
      for (int64_t byte = 0; byte < width * 4; byte += 64) __builtin_prefetch(next + byte);
    }
    const float* row = x + index[k] * width;
    int64_t column = 0;
    for (; column + 4 * kLanes <= width; column += 4 * kLanes) {
      for (int i = 0; i < 4; ++i) sum[i] += load(row + column + i * kLanes);
    }
    for (int i = 0; column + kLanes <= width; column += kLanes, ++i) sum[i] += load(row + column);
    if (column < width && width >= kLanes) {
      sum[3] += load(row + width - kLanes);
    } else {
      for (; column < width; ++column) rest += row[column];
    }
  }
  Lanes all = sum[0] + sum[1] + sum[2] + sum[3];
  for (int64_t i = 0; i < kLanes; ++i) rest += all[i];
  return rest;
}

}  // namespace

extern "C" float read_rows(const float* x, int64_t width, const int32_t* index, int64_t num_indices, int64_t ahead,
                           int64_t num_threads) {
  std::atomic<int64_t> next{0};
  std::vector<float> sums(num_threads);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t begin = next.fetch_add(kBlock); begin < num_indices; begin = next.fetch_add(kBlock)) {
        const int64_t end = begin + kBlock < num_indices ? begin + kBlock : num_indices;
        sums[t] += read_block(x, width, index, begin, end, num_indices, ahead);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  float total = 0;
  for (float sum : sums) total += sum;
  return total;
}
