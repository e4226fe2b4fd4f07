// Stands between a process and the C library's calls that change files, for `disk_shim.py`: counts those under one folder,
// makes one of them fail, and records each. Preloaded (LD_PRELOAD), it also sees the writes of other libraries. Nothing
// happens before `disk_shim_watch`, and nothing in a process that is forked after it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

// As `Kind` of disk_shim.py.
enum kind { MARK, OPEN, CREATE, WRITE, TRUNCATE, SYNC, CLOSE, RENAME, MKDIR, UNLINK, RMDIR, EXCHANGE };

static struct {
  pid_t process;  // the only one that is watched; 0: nobody
  char folder[PATH_MAX];
  size_t folder_length;
  int log;
  long count, fail_at;
  unsigned kinds;
  int error, lasting;
} shim;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

// An empty folder ends it. Operation `fail_at` (-1: none) ends in `error`, if it is of one of `kinds`.
void disk_shim_watch(const char *folder, const char *log, long fail_at, unsigned kinds, int error, int lasting) {
  __typeof__(&open) real_open = REAL(open);
  __typeof__(&close) real_close = REAL(close);
  pthread_mutex_lock(&lock);  // another thread may just be writing something down
  if (shim.process) real_close(shim.log);
  shim.process = 0;
  if (!*folder) {
    pthread_mutex_unlock(&lock);
    return;
  }
  int opened = real_open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
  shim.log = fcntl(opened, F_DUPFD_CLOEXEC, 900);
  real_close(opened);
  strncpy(shim.folder, folder, PATH_MAX - 1);
  shim.folder_length = strlen(shim.folder);
  shim.count = 0;
  shim.fail_at = fail_at;
  shim.kinds = kinds;
  shim.error = error;
  shim.lasting = lasting;
  shim.process = getpid();
  pthread_mutex_unlock(&lock);
}

static int watching(void) { return shim.process && shim.process == getpid(); }

static int inside(const char *path) {
  return !strncmp(path, shim.folder, shim.folder_length) &&
         (path[shim.folder_length] == '/' || path[shim.folder_length] == 0);
}

// The absolute path of an open file or folder; the empty one if it has none.
static void path_of(int descriptor, char *out) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, out, PATH_MAX - 1);
  out[length < 0 ? 0 : length] = 0;
}

static void absolute(int at, const char *path, char *out) {
  if (path[0] == '/') {
    snprintf(out, PATH_MAX, "%s", path);
    return;
  }
  char base[PATH_MAX];
  if (at == AT_FDCWD) {
    if (!getcwd(base, sizeof base)) base[0] = 0;
  } else {
    path_of(at, base);
  }
  while (path[0] == '.' && path[1] == '/') path += 2;
  if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) out[0] = 0;
}

struct header {
  int32_t kind, error;
  int64_t offset;
  int64_t lengths[3];
};

// One operation: what it was, the error that it gave (0: none), its path, a second one, and what was written where.
static void record(enum kind kind, int error, const char *path, const char *second, off_t offset,
                   const struct iovec *data, int pieces, ssize_t length) {
  struct header header = {kind, error, offset, {strlen(path), strlen(second), length > 0 ? length : 0}};
  struct iovec parts[3] = {{&header, sizeof header}, {(void *)path, strlen(path)}, {(void *)second, strlen(second)}};
  __typeof__(&writev) real_writev = REAL(writev);
  __typeof__(&write) real_write = REAL(write);
  if (!shim.process) return;  // it has ended meanwhile
  if (real_writev(shim.log, parts, 3) < 0) abort();
  for (int k = 0; k < pieces && length > 0; ++k) {
    size_t part = data[k].iov_len < (size_t)length ? data[k].iov_len : (size_t)length;
    if (part && real_write(shim.log, data[k].iov_base, part) != (ssize_t)part) abort();
    length -= part;
  }
}

void disk_shim_mark(const char *text) {
  if (!watching()) return;
  pthread_mutex_lock(&lock);
  record(MARK, 0, text, "", 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
}

// Whether this operation is to fail: its error, -1 for a write that is to come out short, or 0.
static int verdict(enum kind kind) {
  long number = shim.count++;
  if (!(shim.kinds >> kind & 1)) return 0;
  return number == shim.fail_at || (shim.lasting && shim.fail_at >= 0 && number > shim.fail_at) ? shim.error : 0;
}

// Does an operation, or fails in its place, and records it.
#define GUARDED(kind, path, second, offset, call)                      \
  ({                                                                   \
    pthread_mutex_lock(&lock);                                         \
    int error = verdict(kind);                                         \
    __typeof__(call) result = -1;                                      \
    if (error > 0)                                                     \
      errno = error;                                                   \
    else                                                               \
      result = (call);                                                 \
    int kept = errno;                                                  \
    record(kind, result < 0 ? kept : 0, path, second, offset, NULL, 0, 0); \
    pthread_mutex_unlock(&lock);                                       \
    errno = kept;                                                      \
    result;                                                            \
  })

static int opened(int at, const char *path, int flags, mode_t mode) {
  __typeof__(&openat) real_openat = REAL(openat);
  char full[PATH_MAX];
  if (!watching()) return real_openat(at, path, flags, mode);
  absolute(at, path, full);
  if (!inside(full)) return real_openat(at, path, flags, mode);
  struct stat status;
  int there = !stat(full, &status);
  enum kind kind = (flags & O_CREAT) && !there ? CREATE : OPEN;
  if ((flags & O_TRUNC) && there && status.st_size) {
    int found = GUARDED(OPEN, full, "", 0, real_openat(at, path, flags & ~O_TRUNC, mode));
    if (found < 0 || !ftruncate(found, 0)) return found;
    int error = errno;
    close(found);
    errno = error;
    return -1;
  }
  return GUARDED(kind, full, "", 0, real_openat(at, path, flags, mode));
}

#define OPENS(at, path, flags)                \
  mode_t mode = 0;                            \
  if ((flags) & (O_CREAT | O_TMPFILE)) {      \
    va_list rest;                             \
    va_start(rest, flags);                    \
    mode = va_arg(rest, mode_t);              \
    va_end(rest);                             \
  }                                           \
  return opened(at, path, flags, mode);

#define ALSO(name) __attribute__((alias(name)))  // on 64 bits the same

int open(const char *path, int flags, ...) { OPENS(AT_FDCWD, path, flags) }
int open64(const char *path, int flags, ...) ALSO("open");
int openat(int at, const char *path, int flags, ...) { OPENS(at, path, flags) }
int openat64(int at, const char *path, int flags, ...) ALSO("openat");
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

// `offset` < 0: at the file's own place.
static ssize_t written(int descriptor, const struct iovec *data, int pieces, off_t offset) {
  __typeof__(&writev) real_writev = REAL(writev);
  __typeof__(&pwritev) real_pwritev = REAL(pwritev);
  char path[PATH_MAX];
  if (watching()) path_of(descriptor, path);
  if (!watching() || !inside(path))
    return offset < 0 ? real_writev(descriptor, data, pieces) : real_pwritev(descriptor, data, pieces, offset);
  pthread_mutex_lock(&lock);
  int error = verdict(WRITE);
  ssize_t result = -1;
  struct iovec half = {data[0].iov_base, (data[0].iov_len + 1) / 2};
  if (error < 0) data = &half, pieces = 1;
  if (error > 0)
    errno = error;
  else
    result = offset < 0 ? real_writev(descriptor, data, pieces) : real_pwritev(descriptor, data, pieces, offset);
  int kept = errno;
  off_t place = offset < 0 ? lseek(descriptor, 0, SEEK_CUR) - (result > 0 ? result : 0) : offset;
  record(WRITE, result < 0 ? kept : 0, path, "", place, data, pieces, result);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return result;
}

ssize_t write(int descriptor, const void *data, size_t length) {
  if (!watching()) return REAL(write)(descriptor, data, length);
  struct iovec one = {(void *)data, length};
  return written(descriptor, &one, 1, -1);
}
ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
  struct iovec one = {(void *)data, length};
  return written(descriptor, &one, 1, offset);
}
ssize_t pwrite64(int descriptor, const void *data, size_t length, off_t offset) ALSO("pwrite");
ssize_t writev(int descriptor, const struct iovec *data, int pieces) { return written(descriptor, data, pieces, -1); }
ssize_t pwritev(int descriptor, const struct iovec *data, int pieces, off_t offset) {
  return written(descriptor, data, pieces, offset);
}
ssize_t pwritev64(int descriptor, const struct iovec *data, int pieces, off_t offset) ALSO("pwritev");

// The C library writes a stream's content by itself; NumPy writes arrays so. At once here, and not from its buffer later.
size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
  __typeof__(&fwrite) real_fwrite = REAL(fwrite);
  char path[PATH_MAX];
  if (watching()) path_of(fileno(stream), path);
  if (!watching() || !inside(path)) return real_fwrite(data, size, count, stream);
  pthread_mutex_lock(&lock);
  int error = verdict(WRITE);
  off_t place = ftello(stream);
  size_t result = 0;
  if (error > 0)
    errno = error;
  else
    result = real_fwrite(data, size, error < 0 ? count / 2 : count, stream);
  if (fflush(stream)) result = 0;
  int kept = errno;
  struct iovec one = {(void *)data, size * result};
  record(WRITE, result ? 0 : kept, path, "", place, &one, 1, size * result);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return result;
}

int ftruncate(int descriptor, off_t length) {
  char path[PATH_MAX];
  if (watching()) path_of(descriptor, path);
  if (!watching() || !inside(path)) return REAL(ftruncate)(descriptor, length);
  return GUARDED(TRUNCATE, path, "", length, REAL(ftruncate)(descriptor, length));
}
int ftruncate64(int descriptor, off_t length) ALSO("ftruncate");

static int synced(int descriptor, int (*call)(int)) {
  char path[PATH_MAX];
  if (watching()) path_of(descriptor, path);
  if (!watching() || !inside(path)) return call(descriptor);
  return GUARDED(SYNC, path, "", 0, call(descriptor));
}
int fsync(int descriptor) { return synced(descriptor, REAL(fsync)); }
int fdatasync(int descriptor) { return synced(descriptor, REAL(fdatasync)); }

// Closed all the same, as Linux does: a network's file system says only then that it had no room.
int close(int descriptor) {
  __typeof__(&close) real_close = REAL(close);
  char path[PATH_MAX];
  if (watching()) path_of(descriptor, path);
  if (!watching() || !inside(path) || (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY)
    return real_close(descriptor);
  pthread_mutex_lock(&lock);
  int error = verdict(CLOSE);
  int result = real_close(descriptor), kept = errno;
  if (error > 0) result = -1, kept = error;
  record(CLOSE, result < 0 ? kept : 0, path, "", 0, NULL, 0, 0);
  pthread_mutex_unlock(&lock);
  errno = kept;
  return result;
}

static int renamed(int from, const char *path, int to, const char *target, unsigned flags) {
  __typeof__(&renameat2) real_renameat2 = REAL(renameat2);
  char full[PATH_MAX], second[PATH_MAX];
  if (!watching()) return real_renameat2(from, path, to, target, flags);
  absolute(from, path, full);
  absolute(to, target, second);
  if (!inside(full) && !inside(second)) return real_renameat2(from, path, to, target, flags);
  enum kind kind = flags & RENAME_EXCHANGE ? EXCHANGE : RENAME;
  return GUARDED(kind, full, second, 0, real_renameat2(from, path, to, target, flags));
}
int rename(const char *path, const char *target) { return renamed(AT_FDCWD, path, AT_FDCWD, target, 0); }
int renameat(int from, const char *path, int to, const char *target) { return renamed(from, path, to, target, 0); }
int renameat2(int from, const char *path, int to, const char *target, unsigned flags) {
  return renamed(from, path, to, target, flags);
}

int mkdirat(int at, const char *path, mode_t mode) {
  __typeof__(&mkdirat) real_mkdirat = REAL(mkdirat);
  char full[PATH_MAX];
  if (watching()) absolute(at, path, full);
  if (!watching() || !inside(full)) return real_mkdirat(at, path, mode);
  return GUARDED(MKDIR, full, "", 0, real_mkdirat(at, path, mode));
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int at, const char *path, int flags) {
  __typeof__(&unlinkat) real_unlinkat = REAL(unlinkat);
  char full[PATH_MAX];
  if (watching()) absolute(at, path, full);
  if (!watching() || !inside(full)) return real_unlinkat(at, path, flags);
  return GUARDED(flags & AT_REMOVEDIR ? RMDIR : UNLINK, full, "", 0, real_unlinkat(at, path, flags));
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
