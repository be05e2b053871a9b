/* A lock that many readers, or one writer, hold: matches read the automaton, edits and fills write it. */
#ifndef SAPWOOD_READ_WRITE_LOCK_H
#define SAPWOOD_READ_WRITE_LOCK_H

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef SRWLOCK read_write_lock;
static inline int lock_init(read_write_lock *lock) { return InitializeSRWLock(lock), 0; }
static inline void lock_destroy(read_write_lock *lock) { (void)lock; }
static inline void lock_read(read_write_lock *lock) { AcquireSRWLockShared(lock); }
static inline void unlock_read(read_write_lock *lock) { ReleaseSRWLockShared(lock); }
static inline void lock_write(read_write_lock *lock) { AcquireSRWLockExclusive(lock); }
static inline int try_lock_read(read_write_lock *lock) { return TryAcquireSRWLockShared(lock); }
static inline int try_lock_write(read_write_lock *lock) { return TryAcquireSRWLockExclusive(lock); }
static inline void unlock_write(read_write_lock *lock) { ReleaseSRWLockExclusive(lock); }
#else
#include <pthread.h>

typedef pthread_rwlock_t read_write_lock;

/* A reader never takes the lock twice, so that writers may go first: else edits wait while others match. */
static inline int lock_init(read_write_lock *lock) {
    pthread_rwlockattr_t attributes;
    if (pthread_rwlockattr_init(&attributes)) return -1;
#ifdef __GLIBC__
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    int failed = pthread_rwlock_init(lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    return failed ? -1 : 0;
}

static inline int try_lock_read(read_write_lock *lock) { return pthread_rwlock_tryrdlock(lock) == 0; }
static inline void lock_destroy(read_write_lock *lock) { pthread_rwlock_destroy(lock); }
static inline void lock_read(read_write_lock *lock) { pthread_rwlock_rdlock(lock); }
static inline void unlock_read(read_write_lock *lock) { pthread_rwlock_unlock(lock); }
static inline void lock_write(read_write_lock *lock) { pthread_rwlock_wrlock(lock); }
static inline int try_lock_write(read_write_lock *lock) { return pthread_rwlock_trywrlock(lock) == 0; }
static inline void unlock_write(read_write_lock *lock) { pthread_rwlock_unlock(lock); }
#endif

#endif
