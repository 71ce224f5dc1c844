//! Tasks and timers.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{sleep_until, Instant as Deadline, Sleep};

use crate::{black_box, bytes_left_by, runtime, CpuTime, Cpus, PollFn, Samples, SAMPLES, TASKS};

const LIVE_TIMERS: usize = 1_000_000;

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
    static WAKERS: RefCell<Vec<Option<Waker>>> = const { RefCell::new(Vec::new()) };
}

fn done() -> u64 {
    DONE.with(|d| d.get())
}

fn count_one() {
    DONE.with(|d| d.set(d.get() + 1));
}

/// Lets the others run until the count says that all of them have.
async fn until_done(target: u64) {
    while done() < target {
        yield_now().await;
    }
}

/// splitmix64, as in runtime/rng.h.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        (((self.next() >> 32) as u128 * n as u128) >> 32) as u64
    }

    /// Within the next hour, but for its first minute: nothing fires while we measure.
    fn delay(&mut self) -> Duration {
        Duration::from_nanos(60_000_000_000 + (self.below(3_540_000) * 1_000_000))
    }
}

pub fn spawn_finish(_: Cpus) -> Samples {
    const BATCHES: u64 = 400;
    runtime().block_on(async {
        let mut samples = Samples::new();
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..BATCHES {
                let target = done() + TASKS;
                for _ in 0..TASKS {
                    drop(tokio::spawn(async { count_one() }));
                }
                until_done(target).await;
            }
            samples.push(start.ns_each(BATCHES * TASKS));
        }
        samples
    })
}

pub fn spawn_join(_: Cpus) -> Samples {
    const BATCHES: u64 = 400;
    runtime().block_on(async {
        let mut samples = Samples::new();
        let mut handles = Vec::with_capacity(TASKS as usize);
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..BATCHES {
                for _ in 0..TASKS {
                    handles.push(tokio::spawn(async { black_box(1u64) }));
                }
                for handle in handles.drain(..) {
                    handle.await.expect("it does not fail");
                }
            }
            samples.push(start.ns_each(BATCHES * TASKS));
        }
        samples
    })
}

/// Waits without end; leaves its waker where the waking side finds it.
async fn wait_at(index: usize) {
    PollFn(|cx: &mut Context<'_>| {
        count_one();
        WAKERS.with(|w| {
            let slot = &mut w.borrow_mut()[index];
            match slot {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => *slot = Some(cx.waker().clone()),
            }
        });
        Poll::<()>::Pending
    })
    .await
}

pub fn wake_poll(_: Cpus) -> Samples {
    const BATCHES: u64 = 400;
    WAKERS.with(|w| w.borrow_mut().resize(TASKS as usize, None));
    let samples = runtime().block_on(async {
        let mut samples = Samples::new();
        let target = done() + TASKS;
        for index in 0..TASKS as usize {
            tokio::spawn(wait_at(index));
        }
        until_done(target).await;
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..BATCHES {
                let target = done() + TASKS;
                WAKERS.with(|w| w.borrow().iter().flatten().for_each(Waker::wake_by_ref));
                until_done(target).await;
            }
            samples.push(start.ns_each(BATCHES * TASKS));
        }
        samples
    });
    WAKERS.with(|w| w.borrow_mut().clear());
    samples
}

/// `Notify` is what a wait list is here.
pub fn wait_list(_: Cpus) -> Samples {
    const BATCHES: u64 = 400;
    let notify: &'static Notify = Box::leak(Box::new(Notify::new()));
    runtime().block_on(async {
        let mut samples = Samples::new();
        let target = done() + TASKS;
        for _ in 0..TASKS {
            tokio::spawn(async {
                loop {
                    count_one();
                    notify.notified().await;
                }
            });
        }
        until_done(target).await;
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..BATCHES {
                let target = done() + TASKS;
                notify.notify_waiters();
                until_done(target).await;
            }
            samples.push(start.ns_each(BATCHES * TASKS));
        }
        samples
    })
}

pub fn yields(_: Cpus) -> Samples {
    const YIELDS: u64 = 400;
    runtime().block_on(async {
        let mut samples = Samples::new();
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            let handles: Vec<_> = (0..TASKS)
                .map(|_| {
                    tokio::spawn(async {
                        for _ in 0..YIELDS {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            for handle in handles {
                handle.await.expect("it does not fail");
            }
            samples.push(start.ns_each(YIELDS * TASKS));
        }
        samples
    })
}

/// Registers a timer with the wheel; it isn't due.
async fn arm(sleep: &mut Pin<&mut Sleep>) {
    PollFn(|cx: &mut Context<'_>| {
        assert!(sleep.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await
}

/// All of it outside of the cooperative budget, which would leave every 129th timer unregistered.
async fn crowd(rng: &mut Rng, now: Deadline) -> Vec<Pin<Box<Sleep>>> {
    let mut live = Vec::with_capacity(LIVE_TIMERS);
    for _ in 0..LIVE_TIMERS {
        let mut sleep = Box::pin(sleep_until(now + rng.delay()));
        arm(&mut sleep.as_mut()).await;
        live.push(sleep);
    }
    live
}

pub fn timer(_: Cpus) -> Samples {
    const ROUNDS: u64 = 50_000;
    runtime().block_on(unconstrained(async {
        let mut samples = Samples::new();
        let mut rng = Rng(1);
        let now = Deadline::now();
        let live = crowd(&mut rng, now).await;
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..ROUNDS {
                let sleep = sleep_until(now + rng.delay());
                tokio::pin!(sleep);
                arm(&mut sleep).await;
            }
            samples.push(start.ns_each(ROUNDS));
        }
        drop(live);
        samples
    }))
}

pub fn timer_move(_: Cpus) -> Samples {
    const ROUNDS: u64 = 50_000;
    runtime().block_on(unconstrained(async {
        let mut samples = Samples::new();
        let mut rng = Rng(1);
        let now = Deadline::now();
        let mut live = crowd(&mut rng, now).await;
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..ROUNDS {
                let index = rng.below(LIVE_TIMERS as u64) as usize;
                let mut sleep = live[index].as_mut();
                sleep.as_mut().reset(now + rng.delay());
                arm(&mut sleep).await;
            }
            samples.push(start.ns_each(ROUNDS));
        }
        samples
    }))
}

/// Bytes, not ns. In batches, so that the run queue doesn't grow and isn't counted.
pub fn parked_bytes(_: Cpus) -> Samples {
    const BATCHES: u64 = 500;
    (0..=1)
        .map(|_| {
            let runtime = runtime();
            let left = bytes_left_by(|| {
                runtime.block_on(async {
                    for _ in 0..BATCHES {
                        let target = done() + TASKS;
                        for _ in 0..TASKS {
                            tokio::spawn(async {
                                count_one();
                                tokio::time::sleep(Duration::from_secs(3600)).await;
                            });
                        }
                        until_done(target).await;
                    }
                })
            });
            left as f64 / (BATCHES * TASKS) as f64
        })
        .collect()
}
