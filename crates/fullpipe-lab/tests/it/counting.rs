//! An allocator that counts the allocations of those threads that ask for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An allocator that counts the allocations of each thread separately, because tests run in parallel.
pub(super) struct Counting;

thread_local! {
    static COUNTER: Cell<Option<&'static AtomicU64>> = const { Cell::new(None) };
}

/// Makes `counter` count the allocations of this thread from now on.
pub(super) fn count_in(counter: &'static AtomicU64) {
    COUNTER.set(Some(counter));
}

fn count() {
    // When a thread ends, its variables are already destroyed; the allocations after that need not be counted.
    if let Ok(Some(counter)) = COUNTER.try_with(Cell::get) {
        counter.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantee is passed on to the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantee is passed on to the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee is passed on to the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's guarantee is passed on to the system's allocator.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
