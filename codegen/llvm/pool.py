"""The fork-join thread pool of a package, as LLVM text.

everport_parallel(pool, fn, buffers, ints, n) runs fn(buffers, ints, begin, end) over a static partition of 0 .. n and
returns when all is done. Workers spin for a while, then sleep on a futex. A pool that is busy (another caller, or a nested
loop) or NULL makes the caller do all the work itself. After a fork the runtime makes a new pool (threads are not inherited).

Layout of a pool (i64 words, one allocation, 64-byte lines): 0 ticket (i32, futex word), 8 remaining (i32), 16 busy (i32), 20 stop (i32),
24 size (i32: threads with the caller), 32 fn, 40 buffers, 48 ints, 56 n, 72 number of started workers (i64),
80 worker counter (i32), 128... pthread_t of each worker.
"""

from __future__ import annotations

from everport.targets import Target

# Linux system call number of futex.
_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
SPINS = 20000


def pool_text(target: Target) -> str:
    """The pool for a Linux target; needs pthread_create, pthread_join, calloc, free and syscall of the C library."""
    architecture = target.level.triple.partition("-")[0]
    futex = _FUTEX[architecture]
    declaration, pause = _PAUSE[architecture]
    return f"""
{declaration}
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare i64 @syscall(i64, ...)

define internal void @everport_share(ptr %pool, i64 %rank, i64 %size) nounwind {{
entry:
  %p.fn = getelementptr i8, ptr %pool, i64 32
  %p.buffers = getelementptr i8, ptr %pool, i64 40
  %p.ints = getelementptr i8, ptr %pool, i64 48
  %p.n = getelementptr i8, ptr %pool, i64 56
  %fn = load ptr, ptr %p.fn
  %buffers = load ptr, ptr %p.buffers
  %ints = load ptr, ptr %p.ints
  %n = load i64, ptr %p.n
  %base = sdiv i64 %n, %size
  %extra = srem i64 %n, %size
  %before = call i64 @llvm.smin.i64(i64 %rank, i64 %extra)
  %start0 = mul i64 %base, %rank
  %begin = add i64 %start0, %before
  %has = icmp slt i64 %rank, %extra
  %one = zext i1 %has to i64
  %length = add i64 %base, %one
  %end = add i64 %begin, %length
  %some = icmp sgt i64 %length, 0
  br i1 %some, label %work, label %done
work:
  call void %fn(ptr %buffers, ptr %ints, i64 %begin, i64 %end)
  br label %done
done:
  ret void
}}
declare i64 @llvm.smin.i64(i64, i64)

define internal ptr @everport_worker(ptr %pool) nounwind {{
entry:
  %p.counter = getelementptr i8, ptr %pool, i64 80
  %earlier = atomicrmw add ptr %p.counter, i32 1 seq_cst
  %rank32 = add i32 %earlier, 1
  %rank = sext i32 %rank32 to i64
  %p.remaining = getelementptr i8, ptr %pool, i64 8
  %p.stop = getelementptr i8, ptr %pool, i64 20
  %p.started = getelementptr i8, ptr %pool, i64 72
  br label %wait
wait:
  %last = phi i32 [ 0, %entry ], [ %seen, %finish ]
  br label %spin
spin:
  %tries = phi i32 [ 0, %wait ], [ %next, %pause ], [ 0, %sleep ]
  %now = load atomic i32, ptr %pool acquire, align 4
  %changed = icmp ne i32 %now, %last
  br i1 %changed, label %go, label %again
again:
  %next = add i32 %tries, 1
  %tired = icmp sgt i32 %tries, {SPINS}
  br i1 %tired, label %sleep, label %pause
pause:
  {pause}
  br label %spin
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i64 128, i32 %last, ptr null, ptr null, i32 0)
  br label %spin
go:
  %seen = phi i32 [ %now, %spin ]
  %stop = load atomic i32, ptr %p.stop acquire, align 4
  %ending = icmp ne i32 %stop, 0
  br i1 %ending, label %exit, label %run
run:
  %started = load atomic i64, ptr %p.started acquire, align 8
  %size = add i64 %started, 1
  call void @everport_share(ptr %pool, i64 %rank, i64 %size)
  br label %finish
finish:
  %left = atomicrmw sub ptr %p.remaining, i32 1 acq_rel
  br label %wait
exit:
  ret ptr null
}}

define void @everport_parallel(ptr %pool, ptr %fn, ptr %buffers, ptr %ints, i64 %n) nounwind {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %nonempty, label %return
nonempty:
  %nopool = icmp eq ptr %pool, null
  %single = icmp eq i64 %n, 1
  %direct = or i1 %nopool, %single
  br i1 %direct, label %alone, label %try
try:
  %p.busy = getelementptr i8, ptr %pool, i64 16
  %locked = cmpxchg ptr %p.busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %locked, 1
  br i1 %mine, label %owned, label %alone
owned:
  %p.started = getelementptr i8, ptr %pool, i64 72
  %p.remaining = getelementptr i8, ptr %pool, i64 8
  %p.fn = getelementptr i8, ptr %pool, i64 32
  %p.buffers = getelementptr i8, ptr %pool, i64 40
  %p.ints = getelementptr i8, ptr %pool, i64 48
  %p.n = getelementptr i8, ptr %pool, i64 56
  %started = load atomic i64, ptr %p.started acquire, align 8
  store ptr %fn, ptr %p.fn
  store ptr %buffers, ptr %p.buffers
  store ptr %ints, ptr %p.ints
  store i64 %n, ptr %p.n
  %workers = trunc i64 %started to i32
  store atomic i32 %workers, ptr %p.remaining release, align 4
  %old = atomicrmw add ptr %pool, i32 1 acq_rel
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i64 129, i32 2147483647, ptr null, ptr null, i32 0)
  %size = add i64 %started, 1
  call void @everport_share(ptr %pool, i64 0, i64 %size)
  br label %join
join:
  %left = load atomic i32, ptr %p.remaining acquire, align 4
  %over = icmp eq i32 %left, 0
  br i1 %over, label %release, label %relax
relax:
  {pause}
  br label %join
release:
  store atomic i32 0, ptr %p.busy release, align 4
  ret void
alone:
  call void %fn(ptr %buffers, ptr %ints, i64 0, i64 %n)
  ret void
return:
  ret void
}}

define ptr @everport_pool_create(i32 %threads) nounwind {{
entry:
  %many = icmp sgt i32 %threads, 1
  br i1 %many, label %make, label %none
make:
  %wide = sext i32 %threads to i64
  %slots = mul i64 %wide, 8
  %bytes = add i64 %slots, 256
  %pool = call ptr @calloc(i64 1, i64 %bytes)
  %failed = icmp eq ptr %pool, null
  br i1 %failed, label %none, label %start
start:
  %p.started = getelementptr i8, ptr %pool, i64 72
  %p.size = getelementptr i8, ptr %pool, i64 24
  store i32 %threads, ptr %p.size
  %last = sub i64 %wide, 1
  br label %spawn
spawn:
  %k = phi i64 [ 0, %start ], [ %following, %started ]
  %more = icmp slt i64 %k, %last
  br i1 %more, label %one, label %finish
one:
  %where0 = mul i64 %k, 8
  %where1 = add i64 %where0, 128
  %slot = getelementptr i8, ptr %pool, i64 %where1
  %code = call i32 @pthread_create(ptr %slot, ptr null, ptr @everport_worker, ptr %pool)
  %ok = icmp eq i32 %code, 0
  br i1 %ok, label %started, label %finish
started:
  %following = add i64 %k, 1
  store atomic i64 %following, ptr %p.started release, align 8
  br label %spawn
finish:
  ret ptr %pool
none:
  ret ptr null
}}

define void @everport_pool_destroy(ptr %pool) nounwind {{
entry:
  %nothing = icmp eq ptr %pool, null
  br i1 %nothing, label %return, label %stop
stop:
  %p.stop = getelementptr i8, ptr %pool, i64 20
  store atomic i32 1, ptr %p.stop release, align 4
  %old = atomicrmw add ptr %pool, i32 1 acq_rel
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pool, i64 129, i32 2147483647, ptr null, ptr null, i32 0)
  %p.started = getelementptr i8, ptr %pool, i64 72
  %started = load atomic i64, ptr %p.started acquire, align 8
  br label %loop
loop:
  %k = phi i64 [ 0, %stop ], [ %following, %join ]
  %more = icmp slt i64 %k, %started
  br i1 %more, label %join, label %release
join:
  %where0 = mul i64 %k, 8
  %where1 = add i64 %where0, 128
  %slot = getelementptr i8, ptr %pool, i64 %where1
  %thread = load i64, ptr %slot
  %code = call i32 @pthread_join(i64 %thread, ptr null)
  %following = add i64 %k, 1
  br label %loop
release:
  call void @free(ptr %pool)
  ret void
return:
  ret void
}}
"""
