//! The board: Arm's MPS2 with the image AN386 (Cortex-M4F) in QEMU. Serial ports, heap, stack, exit.
#![allow(unsafe_code, reason = "registers, the allocator and the stack's memory need it")]

use core::alloc::{GlobalAlloc, Layout};
use core::fmt::Write;
use core::panic::PanicInfo;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

// Provides the critical section that the allocator needs.
use cortex_m as _;
use cortex_m_rt::{STACK_PAINT_VALUE, heap_start};
use cortex_m_semihosting::{debug, hio};
use embedded_alloc::LlffHeap;

/// A serial port: the UART of Arm's Cortex-M System Design Kit (DDI 0479).
pub(crate) struct Uart {
    registers: *mut Registers,
}

#[repr(C)]
struct Registers {
    data: u32,
    state: u32,
    control: u32,
    interrupt: u32,
    baud_divisor: u32,
}

const TRANSMIT_FULL: u32 = 1;
const RECEIVE_FULL: u32 = 2;
const ENABLE_BOTH: u32 = 3;
/// The smallest divisor that the UART supports.
const BAUD_DIVISOR: u32 = 16;

impl Uart {
    /// The line to the server.
    pub(crate) fn network() -> Self {
        Self::new(0x4000_4000)
    }

    /// The line to the host, which provides what a real device would have itself.
    pub(crate) fn host() -> Self {
        Self::new(0x4000_5000)
    }

    fn new(address: usize) -> Self {
        let registers: *mut Registers = ptr::with_exposed_provenance_mut(address);
        // SAFETY: both addresses belong to a UART of this board.
        unsafe {
            (&raw mut (*registers).baud_divisor).write_volatile(BAUD_DIVISOR);
            (&raw mut (*registers).control).write_volatile(ENABLE_BOTH);
        }
        Self { registers }
    }

    /// Waits for a byte and returns it.
    pub(crate) fn read(&mut self) -> u8 {
        self.wait_while(|state| state & RECEIVE_FULL == 0);
        // SAFETY: as in `new`; the register holds one byte.
        unsafe { (&raw mut (*self.registers).data).read_volatile() as u8 }
    }

    /// Sends all bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.wait_while(|state| state & TRANSMIT_FULL != 0);
            // SAFETY: as in `new`.
            unsafe { (&raw mut (*self.registers).data).write_volatile(u32::from(*byte)) }
        }
    }

    fn wait_while(&self, busy: impl Fn(u32) -> bool) {
        // SAFETY: as in `new`.
        while busy(unsafe { (&raw mut (*self.registers).state).read_volatile() }) {}
    }
}

/// The size of the heap, more than any of the programs needs. [`usage`] tells how much a program used.
const HEAP_LEN: usize = 64 * 1024;

/// The heap, which records how much of it was used.
struct MeasuredHeap {
    heap: LlffHeap,
    peak: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static HEAP: MeasuredHeap =
    MeasuredHeap { heap: LlffHeap::empty(), peak: AtomicUsize::new(0), end: AtomicUsize::new(0) };

// SAFETY: `LlffHeap` does the work.
unsafe impl GlobalAlloc for MeasuredHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the trait.
        let pointer = unsafe { self.heap.alloc(layout) };
        self.peak.fetch_max(self.heap.used(), Ordering::Relaxed);
        self.end.fetch_max(pointer.addr() + layout.size(), Ordering::Relaxed);
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { self.heap.dealloc(pointer, layout) }
    }
}

/// Initialises the heap. Call it once, before anything allocates.
pub(crate) fn start_heap() {
    // SAFETY: the heap follows the static data. The stack begins at the other end of the RAM, which is twice
    // as large.
    unsafe { HEAP.heap.init(heap_start().addr(), HEAP_LEN) }
}

/// The largest memory usage so far, in bytes.
pub(crate) struct Usage {
    /// The most that was allocated at one time, rounded up by the allocator.
    pub(crate) heap: usize,
    /// The smallest heap in which the same allocations fit at the same addresses, including the gaps between
    /// them.
    pub(crate) heap_span: usize,
    /// The deepest stack.
    pub(crate) stack: usize,
}

/// The memory usage so far.
pub(crate) fn usage() -> Usage {
    unsafe extern "C" {
        static _stack_start: u32;
    }
    let start = heap_start().addr();
    let top = (&raw const _stack_start).addr();
    let words = (start + HEAP_LEN..top).step_by(size_of::<u32>());
    // SAFETY: the words lie between the heap and the top of the stack; the start-up code painted them.
    let is_paint = |address: &usize| unsafe {
        ptr::with_exposed_provenance::<u32>(*address).read_volatile() == STACK_PAINT_VALUE
    };
    Usage {
        heap: HEAP.peak.load(Ordering::Relaxed),
        heap_span: HEAP.end.load(Ordering::Relaxed) - start,
        stack: top - words.take_while(is_paint).last().unwrap_or(start),
    }
}

/// Ends the program with a failure, and prints the reason.
pub(crate) fn fail(reason: &str) -> ! {
    print(format_args!("failed: {reason}\n"));
    exit(debug::EXIT_FAILURE)
}

/// Ends the program with success, and prints its memory usage.
pub(crate) fn succeed() -> ! {
    let Usage { heap, heap_span, stack } = usage();
    print(format_args!("heap {heap}\nheap_span {heap_span}\nstack {stack}\n"));
    exit(debug::EXIT_SUCCESS)
}

/// Prints on the host's console.
pub fn print(text: core::fmt::Arguments<'_>) {
    if let Ok(mut console) = hio::hstdout() {
        // Ignore a failure: the host notices the missing lines.
        let _ = console.write_fmt(text);
    }
}

fn exit(status: debug::ExitStatus) -> ! {
    loop {
        debug::exit(status);
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    fail("panic")
}
