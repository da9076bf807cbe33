/* Fails, or kills at, the n-th call that changes a file below a folder: write, fsync, rename, open for writing, unlink, mkdir.
 *
 * Preloaded into a process by tests/faults/forker.py. FAULT_ROOT is the folder. Nothing is counted before fault_arm().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PASS, KILL, ONCE, FROM_THEN_ON };

static char root[PATH_MAX], snapshots[PATH_MAX];
static size_t root_length;
static atomic_int armed, calls;
static int target, kind, code, log_file = -1;

static void *next_of(const char *name) { return dlsym(RTLD_NEXT, name); }

int fault_arm(const char *folder, const char *log, int at, int what, int error) {
    if (!realpath(folder, root)) return -1;
    root_length = strlen(root);
    target = at, kind = what, code = error;
    log_file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    atomic_store(&calls, 0);
    atomic_store(&armed, 1);
    return 0;
}

/* From now on keep what is synced in a folder. */
void fault_keep(const char *folder) { snprintf(snapshots, sizeof snapshots, "%s", folder); }

/* A line in the log by which the caller finds a moment again. */
void fault_note(const char *word) {
    char line[64];
    int length = snprintf(line, sizeof line, "0 %s /\n", word);
    if (atomic_load(&armed) && log_file >= 0) syscall(SYS_write, log_file, line, (size_t)length);
}

int fault_disarm(void) {
    atomic_store(&armed, 0);
    return atomic_load(&calls);
}

static int is_below(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

/* What a file holds as it is synced, kept under the number of the call. */
static void keep(int n, const char *path) {
    char kept[PATH_MAX + 16], bytes[65536];
    snprintf(kept, sizeof kept, "%s/%d", snapshots, n);
    int from = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (from < 0) return;
    int to = syscall(SYS_openat, AT_FDCWD, kept, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t got;
    while ((got = syscall(SYS_read, from, bytes, sizeof bytes)) > 0) syscall(SYS_write, to, bytes, (size_t)got);
    syscall(SYS_close, to);
    syscall(SYS_close, from);
}

/* Whether the call fails; a call is counted where its file lies below the root, and leaves a line in the log. */
static int fails(const char *name, const char *path) {
    if (!is_below(path)) return 0;
    int n = atomic_fetch_add(&calls, 1) + 1;
    if (snapshots[0] && strcmp(name, "fsync") == 0) keep(n, path);
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%d %s %s\n", n, name, path + root_length);
    if (log_file >= 0) syscall(SYS_write, log_file, line, (size_t)length);
    if (kind == KILL && n == target) syscall(SYS_kill, getpid(), SIGKILL);
    if ((kind == ONCE && n == target) || (kind == FROM_THEN_ON && n >= target)) {
        errno = code;
        return 1;
    }
    return 0;
}

/* The whole path of one below a folder; 0 where it cannot be told. */
static int whole_of(char *whole, size_t size, int folder, const char *path) {
    char base[PATH_MAX];
    if (path[0] == '/') return snprintf(whole, size, "%s", path) < (int)size;
    if (folder == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return 0;
        base[n] = 0;
    }
    return snprintf(whole, size, "%s/%s", base, path) < (int)size;
}

static int fails_at(const char *name, int folder, const char *path) {
    char whole[PATH_MAX + 16];
    if (!atomic_load(&armed)) return 0;
    return whole_of(whole, sizeof whole, folder, path) && fails(name, whole);
}

/* A line in the log that counts as no call. */
static void note_at(const char *name, int folder, const char *path) {
    char whole[PATH_MAX + 16], line[PATH_MAX + 64];
    if (!atomic_load(&armed) || log_file < 0 || !whole_of(whole, sizeof whole, folder, path) || !is_below(whole)) return;
    int length = snprintf(line, sizeof line, "0 %s %s\n", name, whole + root_length);
    syscall(SYS_write, log_file, line, (size_t)length);
}

static int fails_of(const char *name, int file) {
    char link[64], path[PATH_MAX];
    if (!atomic_load(&armed)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return fails(name, path);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))next_of(name)

ssize_t write(int file, const void *bytes, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return fails_of("write", file) ? -1 : real(file, bytes, n);
}
ssize_t writev(int file, const struct iovec *parts, int n) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return fails_of("write", file) ? -1 : real(file, parts, n);
}
ssize_t pwrite(int file, const void *bytes, size_t n, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return fails_of("write", file) ? -1 : real(file, bytes, n, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t n, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return fails_of("write", file) ? -1 : real(file, bytes, n, at);
}
ssize_t sendfile(int out, int in, off_t *at, size_t n) {
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t);
    return fails_of("write", out) ? -1 : real(out, in, at, n);
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t n) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    return fails_of("write", out) ? -1 : real(out, in, at, n);
}
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned);
    return fails_of("write", out) ? -1 : real(in, in_at, out, out_at, n, flags);
}
int ftruncate(int file, off_t n) {
    REAL(int, "ftruncate", int, off_t);
    return fails_of("truncate", file) ? -1 : real(file, n);
}
int ftruncate64(int file, off64_t n) {
    REAL(int, "ftruncate64", int, off64_t);
    return fails_of("truncate", file) ? -1 : real(file, n);
}
int fsync(int file) {
    REAL(int, "fsync", int);
    return fails_of("fsync", file) ? -1 : real(file);
}
int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    return fails_of("fsync", file) ? -1 : real(file);
}
int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    note_at("from", AT_FDCWD, from);
    return fails_at("rename", AT_FDCWD, to) ? -1 : real(from, to);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    note_at("from", from_folder, from);
    return fails_at("rename", to_folder, to) ? -1 : real(from_folder, from, to_folder, to);
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    return fails_at("unlink", AT_FDCWD, path) ? -1 : real(path);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    return fails_at("unlink", folder, path) ? -1 : real(folder, path, flags);
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    int failed = real(path);
    if (!failed) note_at("unlink", AT_FDCWD, path);
    return failed;
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    return fails_at("mkdir", AT_FDCWD, path) ? -1 : real(path, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        REAL(int, #name, const char *, int, ...); \
        if ((flags & O_ACCMODE) != O_RDONLY && fails_at("open", AT_FDCWD, path)) return -1; \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
        REAL(int, #name, int, const char *, int, ...); \
        if ((flags & O_ACCMODE) != O_RDONLY && fails_at("open", folder, path)) return -1; \
        return real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)
