//! Channels and permits of one core.

use std::cell::{Cell, RefCell};

use tokio::sync;
use tokio::task::yield_now;

use crate::{black_box, runtime, CpuTime, Cpus, Samples, SAMPLES, TASKS};

const CAPACITY: usize = 64;
const ROUNDS: u64 = 50_000;

/// Takes one sample after another of what `$body` does ROUNDS times.
macro_rules! sampled {
    ($body:expr) => {{
        let mut samples = Samples::new();
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..ROUNDS {
                $body.await;
            }
            samples.push(start.ns_each(ROUNDS));
        }
        samples
    }};
}

pub fn mpsc(_: Cpus) -> Samples {
    runtime().block_on(async {
        let mut samples = Samples::new();
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            let (sender, mut receiver) = sync::mpsc::channel::<u64>(CAPACITY);
            tokio::spawn(async move {
                for i in 0..ROUNDS {
                    sender.send(i).await.expect("the receiver is there");
                }
            });
            let consumer = tokio::spawn(async move {
                let mut sum = 0u64;
                while let Some(i) = receiver.recv().await {
                    sum += i;
                }
                sum
            });
            assert_eq!(consumer.await.expect("it ends"), ROUNDS * (ROUNDS - 1) / 2);
            samples.push(start.ns_each(ROUNDS));
        }
        samples
    })
}

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static SENDERS: RefCell<Vec<Option<sync::oneshot::Sender<u64>>>> =
        const { RefCell::new(Vec::new()) };
}

/// Makes one, parks on it and gets a value, again and again, until it is dropped.
async fn ask(index: usize) -> u64 {
    let mut sum = 0;
    loop {
        let (sender, receiver) = sync::oneshot::channel();
        SENDERS.with(|s| s.borrow_mut()[index] = Some(sender));
        ASKED.with(|a| a.set(a.get() + 1));
        match receiver.await {
            Ok(value) => sum += value,
            Err(_) => return sum,
        }
    }
}

async fn until_all_have_asked() {
    while ASKED.with(Cell::get) < TASKS as usize {
        yield_now().await;
    }
}

pub fn oneshot(_: Cpus) -> Samples {
    const BATCHES: u64 = 400;
    SENDERS.with(|s| s.borrow_mut().resize_with(TASKS as usize, || None));
    runtime().block_on(async {
        let mut samples = Samples::new();
        for index in 0..TASKS as usize {
            tokio::spawn(ask(index));
        }
        until_all_have_asked().await;
        for _ in 0..=SAMPLES {
            let start = CpuTime::now();
            for _ in 0..BATCHES {
                ASKED.with(|a| a.set(0));
                SENDERS.with(|s| {
                    for (value, sender) in s.borrow_mut().iter_mut().enumerate() {
                        let sender = sender.take().expect("it has asked");
                        sender.send(value as u64).expect("the receiver is there");
                    }
                });
                until_all_have_asked().await;
            }
            samples.push(start.ns_each(BATCHES * TASKS));
        }
        SENDERS.with(|s| s.borrow_mut().clear());
        samples
    })
}

pub fn watch(_: Cpus) -> Samples {
    let (_sender, receiver) = sync::watch::channel(7u64);
    let receiver = &receiver;
    runtime().block_on(async {
        sampled!(async { black_box(*receiver.borrow()) })
    })
}

pub fn semaphore(_: Cpus) -> Samples {
    let semaphore = sync::Semaphore::new(CAPACITY);
    let semaphore = &semaphore;
    runtime().block_on(async {
        sampled!(async { drop(black_box(semaphore.acquire().await.expect("it is open"))) })
    })
}

pub fn semaphore_try(_: Cpus) -> Samples {
    let semaphore = sync::Semaphore::new(CAPACITY);
    let semaphore = &semaphore;
    runtime().block_on(async {
        sampled!(async { drop(black_box(semaphore.try_acquire().expect("one is free"))) })
    })
}
