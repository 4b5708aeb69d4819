//! The memory of an array that the kernel and this process share.
#![expect(unsafe_code, reason = "shared memory has no safe interface")]

use datapath_abi::SlotValue;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::{
    ffi::c_void,
    io,
    os::fd::BorrowedFd,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicU64, Ordering},
};

/// The words of an array whose values are slots. Each word is read and written at once.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: NonNull<c_void>,
    words: usize,
}

// SAFETY: the memory belongs to this value, and all accesses are atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps an array with BPF_F_MMAPABLE and this number of entries.
    pub(crate) fn new(array: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let words = entries as usize * WORDS;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping overlaps no other memory.
        let memory = unsafe { mmap(null_mut(), words * WORD, access, MapFlags::SHARED, array, 0) }?;
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory, words })
    }

    pub(crate) fn entries(&self) -> u32 {
        u32::try_from(self.words / WORDS).unwrap_or(u32::MAX)
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this length, starts at a page, and lives as long as this value. Other processes and the
        // kernel change it, and atomics allow that.
        unsafe { std::slice::from_raw_parts(self.memory.cast().as_ptr(), self.words) }
    }

    fn slot(&self, entry: u32) -> Option<&[AtomicU64]> {
        let first = entry as usize * WORDS;
        self.words().get(first..first + WORDS)
    }

    /// An entry. An entry that does not exist is empty.
    pub(crate) fn read(&self, entry: u32) -> SlotValue {
        let mut value = SlotValue::default();
        let words = self.slot(entry).unwrap_or_default();
        for (to, word) in value.chunks_exact_mut(WORD).zip(words) {
            to.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        value
    }

    /// Writes an entry. A program that reads the new first word reads the other new words too.
    pub(crate) fn write(&self, entry: u32, value: &SlotValue) {
        let words = self.slot(entry).unwrap_or_default();
        for (word, from) in words.iter().zip(value.chunks_exact(WORD)).rev() {
            let from = from.try_into().map_or(0, u64::from_ne_bytes);
            word.store(from, Ordering::Release);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping outlives this value.
        let unmapped = unsafe { munmap(self.memory.as_ptr(), self.words * WORD) };
        debug_assert!(unmapped.is_ok(), "the mapping exists");
    }
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Words of a slot.
const WORDS: usize = size_of::<SlotValue>() / WORD;
