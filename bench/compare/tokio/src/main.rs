//! What the same moves cost on Tokio's current_thread runtime. The names and the shapes are those of
//! bench/micro/runtime*.c; docs/benchmarking.md tells what each one measures.
//!
//!     tokio-bench [--list] [--raw] [--cpus A,B] [NAME...]
//!
//! One line each: name, nothing, and the samples in ns, with tabs between; --list: the names.

mod cores;
mod sync;
mod tasks;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Samples a measure takes; the first of them is warm-up and isn't told.
pub const SAMPLES: usize = 5;

/// Tasks at once, where there are many.
pub const TASKS: u64 = 128;

pub type Samples = Vec<f64>;

/// The CPU of all that happens on one core, and the one of the other party.
#[derive(Clone, Copy)]
pub struct Cpus {
    pub own: usize,
    pub other: usize,
}

/// Counts the bytes asked for, not what the allocator adds to them.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static IS_COUNTING: AtomicUsize = AtomicUsize::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTING.load(Ordering::Relaxed) != 0 {
            BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        }
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if IS_COUNTING.load(Ordering::Relaxed) != 0 {
            BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        System.dealloc(ptr, layout)
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that `f` leaves allocated.
pub fn bytes_left_by(f: impl FnOnce()) -> usize {
    IS_COUNTING.store(1, Ordering::Relaxed);
    let before = BYTES.load(Ordering::Relaxed);
    f();
    let after = BYTES.load(Ordering::Relaxed);
    IS_COUNTING.store(0, Ordering::Relaxed);
    after.wrapping_sub(before)
}

/// Time alone: without the I/O driver a turn makes no system call, which is Tokio's best case.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("no runtime")
}

pub fn pin(cpu: usize) {
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set);
    }
}

/// What `std::hint::black_box` does; Debian's compiler (1.63) hasn't got it.
#[inline(always)]
pub fn black_box<T>(value: T) -> T {
    unsafe { std::arch::asm!("/* {0} */", in(reg) &value, options(nostack, preserves_flags)) };
    value
}

/// `std::future::poll_fn`, likewise.
pub struct PollFn<F>(pub F);

impl<T, F: FnMut(&mut Context<'_>) -> Poll<T> + Unpin> Future for PollFn<F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        (self.0)(cx)
    }
}

/// CPU time of this thread: what other processes take of a busy machine doesn't count. For what
/// happens on one core and never sleeps; else `Instant`.
pub struct CpuTime(u64);

impl CpuTime {
    pub fn now() -> CpuTime {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
        CpuTime(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    pub fn ns_each(&self, n: u64) -> f64 {
        (CpuTime::now().0 - self.0) as f64 / n as f64
    }
}

type Run = fn(Cpus) -> Samples;

const MEASURES: &[(&str, Run)] = &[
    ("spawn_finish", tasks::spawn_finish),
    ("spawn_join", tasks::spawn_join),
    ("wake_poll", tasks::wake_poll),
    ("wait_list", tasks::wait_list),
    ("yield", tasks::yields),
    ("timer", tasks::timer),
    ("timer_move", tasks::timer_move),
    ("parked_bytes", tasks::parked_bytes),
    ("mpsc", sync::mpsc),
    ("oneshot", sync::oneshot),
    ("watch", sync::watch),
    ("watch_cores", sync::watch), // there is but one form
    ("semaphore", sync::semaphore),
    ("semaphore_try", sync::semaphore_try),
    ("mpsc_cores", cores::mpsc),
    ("permit_cores", cores::semaphore),
    ("blocking_parked", cores::blocking),
];

fn usage() -> ! {
    eprintln!("Usage: tokio-bench [--list] [--raw] [--cpus A,B] [NAME...]");
    std::process::exit(2);
}

struct Args {
    cpus: Cpus,
    names: Vec<String>,
    is_list: bool,
}

fn parse() -> Args {
    let mut is_list = false;
    let mut cpus = Cpus { own: 1, other: 0 };
    let mut names = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--list" {
            is_list = true;
        } else if arg == "--raw" {
            continue;
        } else if arg == "--cpus" {
            let pair: Option<Vec<usize>> = args
                .next()
                .map(|v| v.split(',').filter_map(|n| n.parse().ok()).collect());
            match pair.as_deref() {
                Some([own, other]) => cpus = Cpus { own: *own, other: *other },
                _ => usage(),
            }
        } else if MEASURES.iter().any(|m| m.0 == arg) {
            names.push(arg);
        } else {
            usage();
        }
    }
    Args { cpus, names, is_list }
}

fn main() {
    let args = parse();
    pin(args.cpus.own);
    for (name, run) in MEASURES {
        if args.is_list {
            println!("{}", name);
        } else if args.names.is_empty() || args.names.iter().any(|n| n == name) {
            let told: Vec<String> =
                run(args.cpus).iter().skip(1).map(|ns| format!("{:.2}", ns)).collect();
            println!("{}\t\t{}", name, told.join(" "));
        }
    }
}
