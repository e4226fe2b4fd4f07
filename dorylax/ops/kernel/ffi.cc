// The kernels as XLA custom calls, on XLA's own thread pool.
//
// Operands that an operation does not use are passed as empty buffers. Offsets come as uint32 [R+1, 2], which is int64
// [R+1] in memory (dorylax/graph/graph.py says why).
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "schedule.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace dorylax {
namespace {

// What the caller and the pool's threads share. It outlives the call: a thread that the pool starts late finds nothing
// left to claim and touches nothing else.
struct Shared {
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> finished{0};
  int64_t n = 0;
  const std::function<void(int64_t)>* job = nullptr;
  std::mutex mutex;
  std::condition_variable done;

  void work() {
    for (int64_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) {
      (*job)(i);
      if (finished.fetch_add(1) + 1 == n) {
        std::lock_guard<std::mutex> lock(mutex);
        done.notify_all();
      }
    }
  }
};

// The calling thread works too and waits only for items that another thread has begun, so this cannot deadlock however
// busy the pool is.
ParallelFor on_pool(ffi::ThreadPool& pool) {
  return [&pool](int64_t n, const std::function<void(int64_t)>& job) {
    if (n == 0) return;
    auto shared = std::make_shared<Shared>();
    shared->n = n;
    shared->job = &job;
    const int64_t helpers = std::min<int64_t>(n, pool.num_threads()) - 1;
    for (int64_t i = 0; i < helpers; ++i) pool.Schedule([shared] { shared->work(); });
    shared->work();
    std::unique_lock<std::mutex> lock(shared->mutex);
    shared->done.wait(lock, [&] { return shared->finished.load() == n; });
  };
}

bool to_dtype(ffi::DataType from, Dtype& to) {
  switch (from) {
    case ffi::DataType::F32: to = Dtype::kFloat32; return true;
    case ffi::DataType::F64: to = Dtype::kFloat64; return true;
    case ffi::DataType::BF16: to = Dtype::kBFloat16; return true;
    default: return false;
  }
}

template <class T>
const T* data_or_null(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() ? static_cast<const T*>(buffer.untyped_data()) : nullptr;
}

// Runs a call's body; no exception may cross into XLA, which is built without them. Memory is all that can run out: jobs
// themselves allocate nothing that throws.
template <class Body>
ffi::Error guarded(Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted, std::string("dorylax: ") + error.what());
  }
}

ffi::Error invalid(const std::string& what) { return ffi::Error(ffi::ErrorCode::kInvalidArgument, "dorylax: " + what); }

// The structure's arrays, checked; heads and width from the last two dimensions of a dense operand.
ffi::Error read_structure(const ffi::AnyBuffer& offsets, const ffi::AnyBuffer& neighbours, const ffi::AnyBuffer& edges,
                          const ffi::AnyBuffer& dense, Rows& rows, int64_t& num_rows) {
  const auto shape = offsets.dimensions();
  if (offsets.element_type() != ffi::DataType::U32 || shape.size() != 2 || shape[0] < 1 || shape[1] != 2) {
    return invalid("offsets must be uint32 [R+1, 2]");
  }
  if (neighbours.element_type() != ffi::DataType::S32 || edges.element_type() != ffi::DataType::S32) {
    return invalid("neighbours and edges must be int32");
  }
  if (dense.dimensions().size() != 3) return invalid("dense operands must have three dimensions");
  num_rows = shape[0] - 1;
  rows.offsets = static_cast<const int64_t*>(offsets.untyped_data());
  rows.neighbours = data_or_null<int32_t>(neighbours);
  rows.edges = data_or_null<int32_t>(edges);
  rows.num_entries = rows.offsets[num_rows];
  if (rows.neighbours && rows.num_entries > static_cast<int64_t>(neighbours.element_count())) {
    return invalid("offsets end past the neighbours");
  }
  rows.num_vertices = dense.dimensions()[0];
  rows.heads = dense.dimensions()[1];
  rows.width = dense.dimensions()[2];
  return ffi::Error::Success();
}

ffi::Error reduce_call(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer weight, ffi::AnyBuffer own,
                       ffi::AnyBuffer other, ffi::AnyBuffer offsets, ffi::AnyBuffer neighbours, ffi::AnyBuffer edges,
                       ffi::Result<ffi::AnyBuffer> out, int32_t op) {
  Dtype dtype;
  if (!to_dtype(x.element_type(), dtype)) return invalid("reduce takes float32, float64 or bfloat16");
  Rows rows = {};
  int64_t num_rows = 0;
  if (ffi::Error error = read_structure(offsets, neighbours, edges, x, rows, num_rows); error.failure()) return error;
  rows.x = x.untyped_data();
  rows.weight = data_or_null<void>(weight);
  rows.own = data_or_null<void>(own);
  rows.other = data_or_null<void>(other);
  rows.out = out->untyped_data();
  if (rows.heads * rows.width == 0) return ffi::Error::Success();
  return guarded([&] {
    reduce(static_cast<Op>(op), dtype, rows, 0, num_rows, on_pool(pool));
    return ffi::Error::Success();
  });
}

// scale[r] * (sum of x[n] + loops[r] * x[r]); the row's own values only if `own`. Empty loops and scale are 1.
ffi::Error scaled_sum_call(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer loops, ffi::AnyBuffer scale,
                           ffi::AnyBuffer offsets, ffi::AnyBuffer neighbours, ffi::Result<ffi::AnyBuffer> out, bool own) {
  Dtype dtype;
  if (!to_dtype(x.element_type(), dtype)) return invalid("scaled_sum takes float32, float64 or bfloat16");
  if (x.element_type() == ffi::DataType::BF16 && out->element_type() == ffi::DataType::F32) {
    dtype = Dtype::kBFloat16ToFloat32;
  } else if (x.element_type() != out->element_type()) {
    return invalid("scaled_sum gives what it takes, or float32 of bfloat16");
  }
  Rows rows = {};
  int64_t num_rows = 0;
  if (ffi::Error error = read_structure(offsets, neighbours, neighbours, x, rows, num_rows); error.failure()) return error;
  rows.edges = nullptr;
  for (const ffi::AnyBuffer& factors : {loops, scale}) {
    const size_t count = factors.element_count();
    if (count != 0 && (count != static_cast<size_t>(num_rows) || factors.element_type() != out->element_type())) {
      return invalid("loops and scale must be empty, or one factor for each row in the dtype of the result");
    }
  }
  if (own && x.dimensions()[0] != num_rows) return invalid("a row's own values need as many rows as vertices");
  rows.x = x.untyped_data();
  rows.own = own ? x.untyped_data() : nullptr;
  rows.loops = data_or_null<void>(loops);
  rows.scale = data_or_null<void>(scale);
  rows.out = out->untyped_data();
  if (rows.heads * rows.width == 0) return ffi::Error::Success();
  return guarded([&] {
    reduce(Op::kScaledSum, dtype, rows, 0, num_rows, on_pool(pool));
    return ffi::Error::Success();
  });
}

ffi::Error dot_call(ffi::ThreadPool pool, ffi::AnyBuffer own, ffi::AnyBuffer x, ffi::AnyBuffer offsets,
                    ffi::AnyBuffer neighbours, ffi::AnyBuffer edges, ffi::Result<ffi::AnyBuffer> out) {
  Dtype dtype;
  if (!to_dtype(x.element_type(), dtype)) return invalid("dot takes float32, float64 or bfloat16");
  Rows rows = {};
  int64_t num_rows = 0;
  if (ffi::Error error = read_structure(offsets, neighbours, edges, x, rows, num_rows); error.failure()) return error;
  rows.x = x.untyped_data();
  rows.own = own.untyped_data();
  rows.out = out->untyped_data();
  return guarded([&] {
    per_entry(active_kernels().dot[static_cast<int>(dtype)], rows, num_rows, on_pool(pool));
    return ffi::Error::Success();
  });
}

ffi::Error expand_call(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer offsets, ffi::AnyBuffer neighbours,
                       ffi::AnyBuffer edges, ffi::Result<ffi::AnyBuffer> out) {
  Dtype dtype;
  if (!to_dtype(x.element_type(), dtype)) return invalid("expand takes float32, float64 or bfloat16");
  Rows rows = {};
  int64_t num_rows = 0;
  if (ffi::Error error = read_structure(offsets, neighbours, edges, x, rows, num_rows); error.failure()) return error;
  rows.x = x.untyped_data();
  rows.out = out->untyped_data();
  if (rows.heads * rows.width == 0) return ffi::Error::Success();
  return guarded([&] {
    per_entry(active_kernels().expand[static_cast<int>(dtype)], rows, num_rows, on_pool(pool));
    return ffi::Error::Success();
  });
}

// The call's arrays, checked: rows of a direction, and operands that all passes take. `loop` is what is given per vertex.
ffi::Error read_attention(const ffi::AnyBuffer& z, const ffi::AnyBuffer& source, const ffi::AnyBuffer& target,
                          const ffi::AnyBuffer& loops, const ffi::AnyBuffer& offsets, const ffi::AnyBuffer& neighbours,
                          double slope, Dtype& dtype, Attention& call, int64_t& num_rows) {
  if (!to_dtype(z.element_type(), dtype)) return invalid("attention takes float32, float64 or bfloat16");
  Rows rows = {};
  if (ffi::Error error = read_structure(offsets, neighbours, neighbours, z, rows, num_rows); error.failure()) return error;
  const size_t vertices = static_cast<size_t>(num_rows), scores = vertices * rows.heads;
  if (static_cast<size_t>(z.dimensions()[0]) != vertices || loops.element_count() != vertices ||
      source.element_count() != scores || target.element_count() != scores) {
    return invalid("attention takes z [V, H, F], scores [V, H] and loops [V] for V rows");
  }
  if (source.element_type() != z.element_type() || target.element_type() != z.element_type() ||
      loops.element_type() != z.element_type()) {
    return invalid("operands of attention must have one dtype");
  }
  call.offsets = rows.offsets;
  call.neighbours = rows.neighbours;
  call.num_entries = rows.num_entries;
  call.z = z.untyped_data();
  call.source = source.untyped_data();
  call.target = target.untyped_data();
  call.loops = loops.untyped_data();
  call.heads = rows.heads;
  call.width = rows.width;
  call.slope = slope;
  return ffi::Error::Success();
}

ffi::Error attend_call(ffi::ThreadPool& pool, Attend pass, Dtype dtype, const Attention& call, int64_t num_rows) {
  if (call.heads * call.width == 0) return invalid("attention takes at least one head and one column");
  return guarded([&] {
    attend(pass, dtype, call, num_rows, on_pool(pool));
    return ffi::Error::Success();
  });
}

ffi::Error attention_call(ffi::ThreadPool pool, ffi::AnyBuffer z, ffi::AnyBuffer source, ffi::AnyBuffer target,
                          ffi::AnyBuffer loops, ffi::AnyBuffer offsets, ffi::AnyBuffer neighbours,
                          ffi::Result<ffi::AnyBuffer> y, double slope) {
  Dtype dtype;
  Attention call = {};
  int64_t num_rows = 0;
  ffi::Error error = read_attention(z, source, target, loops, offsets, neighbours, slope, dtype, call, num_rows);
  if (error.failure()) return error;
  call.out = y->untyped_data();
  return attend_call(pool, Attend::kForward, dtype, call, num_rows);
}

ffi::Error attention_saving_call(ffi::ThreadPool pool, ffi::AnyBuffer z, ffi::AnyBuffer source, ffi::AnyBuffer target,
                                 ffi::AnyBuffer loops, ffi::AnyBuffer offsets, ffi::AnyBuffer neighbours,
                                 ffi::Result<ffi::AnyBuffer> y, ffi::Result<ffi::AnyBuffer> tilt,
                                 ffi::Result<ffi::AnyBuffer> shift, ffi::Result<ffi::AnyBuffer> scale, double slope) {
  Dtype dtype;
  Attention call = {};
  int64_t num_rows = 0;
  ffi::Error error = read_attention(z, source, target, loops, offsets, neighbours, slope, dtype, call, num_rows);
  if (error.failure()) return error;
  call.out = y->untyped_data();
  call.out_tilt = tilt->untyped_data();
  call.out_shift = shift->untyped_data();
  call.out_scale = scale->untyped_data();
  return attend_call(pool, Attend::kSaving, dtype, call, num_rows);
}

ffi::Error attention_backward_call(ffi::ThreadPool pool, ffi::AnyBuffer z, ffi::AnyBuffer source, ffi::AnyBuffer target,
                                   ffi::AnyBuffer loops, ffi::AnyBuffer y, ffi::AnyBuffer tilt, ffi::AnyBuffer shift,
                                   ffi::AnyBuffer scale, ffi::AnyBuffer ct, ffi::AnyBuffer offsets,
                                   ffi::AnyBuffer neighbours, ffi::Result<ffi::AnyBuffer> z_ct,
                                   ffi::Result<ffi::AnyBuffer> source_ct, ffi::Result<ffi::AnyBuffer> target_ct,
                                   double slope) {
  Dtype dtype;
  Attention call = {};
  int64_t num_rows = 0;
  ffi::Error error = read_attention(z, source, target, loops, offsets, neighbours, slope, dtype, call, num_rows);
  if (error.failure()) return error;
  if (y.element_count() != z.element_count() || tilt.element_count() != z.element_count() ||
      ct.element_count() != z.element_count() || shift.element_count() != source.element_count() ||
      scale.element_count() != source.element_count()) {
    return invalid("what attention has saved must be of the shapes of its operands");
  }
  call.y = y.untyped_data();
  call.tilt = tilt.untyped_data();
  call.shift = shift.untyped_data();
  call.scale = scale.untyped_data();
  call.ct = ct.untyped_data();
  call.out = z_ct->untyped_data();
  call.out_source = source_ct->untyped_data();
  call.out_target = target_ct->untyped_data();
  return attend_call(pool, Attend::kBackward, dtype, call, num_rows);
}

}  // namespace
}  // namespace dorylax

// The only symbols of this file that Python looks up.
#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(dorylax_ffi_reduce, dorylax::reduce_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // x [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // weight [E, H]
                                  .Arg<ffi::AnyBuffer>()  // own [R, H, F]
                                  .Arg<ffi::AnyBuffer>()  // other [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // offsets [R+1, 2]
                                  .Arg<ffi::AnyBuffer>()  // neighbours [E]
                                  .Arg<ffi::AnyBuffer>()  // edges [E]
                                  .Ret<ffi::AnyBuffer>()  // [R, H, F]
                                  .Attr<int32_t>("op"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(dorylax_ffi_scaled_sum, dorylax::scaled_sum_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // x [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // loops [R], or empty
                                  .Arg<ffi::AnyBuffer>()  // scale [R], or empty
                                  .Arg<ffi::AnyBuffer>()  // offsets [R+1, 2]
                                  .Arg<ffi::AnyBuffer>()  // neighbours [E]
                                  .Ret<ffi::AnyBuffer>()  // [R, H, F]
                                  .Attr<bool>("own"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(dorylax_ffi_dot, dorylax::dot_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // own [R, H, F]
                                  .Arg<ffi::AnyBuffer>()  // x [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // offsets [R+1, 2]
                                  .Arg<ffi::AnyBuffer>()  // neighbours [E]
                                  .Arg<ffi::AnyBuffer>()  // edges [E]
                                  .Ret<ffi::AnyBuffer>());  // [E, H]

XLA_FFI_DEFINE_HANDLER_SYMBOL(dorylax_ffi_expand, dorylax::expand_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // x [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // offsets [R+1, 2]
                                  .Arg<ffi::AnyBuffer>()  // neighbours [E]
                                  .Arg<ffi::AnyBuffer>()  // edges [E]
                                  .Ret<ffi::AnyBuffer>());  // [E, H, F]

XLA_FFI_DEFINE_HANDLER_SYMBOL(dorylax_ffi_attention, dorylax::attention_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // z [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // source [V, H]
                                  .Arg<ffi::AnyBuffer>()  // target [V, H]
                                  .Arg<ffi::AnyBuffer>()  // loops [V]
                                  .Arg<ffi::AnyBuffer>()  // offsets [V+1, 2]
                                  .Arg<ffi::AnyBuffer>()  // neighbours [E]
                                  .Ret<ffi::AnyBuffer>()  // y [V, H, F]
                                  .Attr<double>("slope"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(dorylax_ffi_attention_saving, dorylax::attention_saving_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // z [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // source [V, H]
                                  .Arg<ffi::AnyBuffer>()  // target [V, H]
                                  .Arg<ffi::AnyBuffer>()  // loops [V]
                                  .Arg<ffi::AnyBuffer>()  // offsets [V+1, 2]
                                  .Arg<ffi::AnyBuffer>()  // neighbours [E]
                                  .Ret<ffi::AnyBuffer>()  // y [V, H, F]
                                  .Ret<ffi::AnyBuffer>()  // tilt [V, H, F]
                                  .Ret<ffi::AnyBuffer>()  // shift [V, H]
                                  .Ret<ffi::AnyBuffer>()  // scale [V, H]
                                  .Attr<double>("slope"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(dorylax_ffi_attention_backward, dorylax::attention_backward_call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // z [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // source [V, H]
                                  .Arg<ffi::AnyBuffer>()  // target [V, H]
                                  .Arg<ffi::AnyBuffer>()  // loops [V]
                                  .Arg<ffi::AnyBuffer>()  // y [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // tilt [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // shift [V, H]
                                  .Arg<ffi::AnyBuffer>()  // scale [V, H]
                                  .Arg<ffi::AnyBuffer>()  // ct [V, H, F]
                                  .Arg<ffi::AnyBuffer>()  // offsets [V+1, 2]
                                  .Arg<ffi::AnyBuffer>()  // neighbours [E]
                                  .Ret<ffi::AnyBuffer>()  // cotangent of z [V, H, F]
                                  .Ret<ffi::AnyBuffer>()  // of source [V, H]
                                  .Ret<ffi::AnyBuffer>()  // of target [V, H]
                                  .Attr<double>("slope"));

#pragma GCC visibility pop
