//! Between two cores: one runtime on each.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use tokio::sync;

use crate::{black_box, pin, runtime, CpuTime, Cpus, Samples, SAMPLES};

pub fn mpsc(cpus: Cpus) -> Samples {
    const ITEMS: u64 = 100_000;
    (0..=SAMPLES)
        .map(|_| {
            let (sender, mut receiver) = sync::mpsc::channel::<u64>(1024);
            let ready = Arc::new(Barrier::new(2));
            let start_line = ready.clone();
            let producer = thread::spawn(move || {
                pin(cpus.other);
                runtime().block_on(async {
                    start_line.wait();
                    for i in 0..ITEMS {
                        sender.send(i).await.expect("the receiver is there");
                    }
                })
            });
            let ns = runtime().block_on(async {
                ready.wait();
                let start = Instant::now();
                let mut sum = 0u64;
                while let Some(i) = receiver.recv().await {
                    sum += i;
                }
                assert_eq!(sum, ITEMS * (ITEMS - 1) / 2);
                start.elapsed().as_nanos() as f64
            });
            producer.join().expect("it ends");
            ns / ITEMS as f64
        })
        .collect()
}

/// Both take and give back as fast as they can; there are always enough permits.
pub fn semaphore(cpus: Cpus) -> Samples {
    const ROUNDS: u64 = 200_000;
    (0..=SAMPLES)
        .map(|_| {
            let semaphore = Arc::new(sync::Semaphore::new(1024));
            let ready = Arc::new(Barrier::new(2));
            let sides: Vec<_> = [cpus.own, cpus.other]
                .into_iter()
                .map(|cpu| {
                    let (semaphore, ready) = (semaphore.clone(), ready.clone());
                    thread::spawn(move || {
                        pin(cpu);
                        runtime().block_on(async {
                            ready.wait();
                            let start = CpuTime::now();
                            for _ in 0..ROUNDS {
                                drop(black_box(semaphore.acquire().await.expect("it is open")));
                            }
                            start.ns_each(ROUNDS)
                        })
                    })
                })
                .collect();
            let took: f64 = sides.into_iter().map(|s| s.join().expect("it ends")).sum();
            took / 2.0
        })
        .collect()
}

/// One pool thread, on the other CPU; both it and the runtime park in between.
pub fn blocking(cpus: Cpus) -> Samples {
    const ROUNDS: u64 = 200;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(1)
        .on_thread_start(move || pin(cpus.other))
        .build()
        .expect("no runtime");
    runtime.block_on(async {
        let mut samples = Samples::new();
        for _ in 0..=SAMPLES {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                tokio::task::spawn_blocking(|| ()).await.expect("it does not fail");
            }
            samples.push(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
        }
        samples
    })
}
