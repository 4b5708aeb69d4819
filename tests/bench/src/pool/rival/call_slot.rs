//! Executor for a program that waits for its environment.
//!
//! amazon-vpc-cni's pool manager is one thread that sleeps and calls. Here it is an `async fn` whose every
//! wait is a [`DaemonRequest`]. The driver polls it again with the answer.

use crate::pool::{
    requests::{DaemonReply, DaemonRequest},
    rng::Rng,
};
use config_model::{Span, Time};
use lab_cloud::{CallError, NetworkInterface, Request, Response};
use std::{
    cell::RefCell,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// State that the program and its driver share.
#[derive(Debug)]
struct Slot {
    now: Time,
    request: Option<DaemonRequest>,
    reply: Option<DaemonReply>,
    rng: Rng,
}

/// The program's end.
#[derive(Clone, Debug)]
pub(super) struct CallSlot(Rc<RefCell<Slot>>);

impl CallSlot {
    pub(super) fn new(seed: u64) -> Self {
        let slot = Slot { now: Time(0), request: None, reply: None, rng: Rng::new(seed) };
        Self(Rc::new(RefCell::new(slot)))
    }

    pub(super) fn now(&self) -> Time {
        self.0.borrow().now
    }

    /// Draws from the seeded random numbers.
    pub(super) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.0.borrow_mut().rng)
    }

    pub(super) async fn sleep(&self, span: Span) {
        self.request(DaemonRequest::Sleep(span)).await;
    }

    /// One call, without retries.
    pub(super) async fn ec2(&self, request: Request) -> Result<Response, CallError> {
        match self.request(DaemonRequest::Ec2(Box::new(request))).await {
            DaemonReply::Ec2(result) => result,
            DaemonReply::Slept | DaemonReply::Imds(_) | DaemonReply::Links(_) => {
                Err(CallError::ReplyLost)
            }
        }
    }

    pub(super) async fn imds(&self) -> Vec<Arc<NetworkInterface>> {
        match self.request(DaemonRequest::Imds).await {
            DaemonReply::Imds(enis) => enis,
            DaemonReply::Slept | DaemonReply::Ec2(_) | DaemonReply::Links(_) => Vec::new(),
        }
    }

    async fn request(&self, request: DaemonRequest) -> DaemonReply {
        self.0.borrow_mut().request = Some(request);
        std::future::poll_fn(|_| match self.0.borrow_mut().reply.take() {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        })
        .await
    }
}

/// The driver's end.
pub(super) struct Program {
    call_slot: CallSlot,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Program {
    pub(super) fn new(call_slot: CallSlot, future: impl Future<Output = ()> + 'static) -> Self {
        Self { call_slot, future: Box::pin(future) }
    }

    /// Resumes the program with the answer to its last request. Returns the next request, or `None` if the
    /// program has ended.
    pub(super) fn resume(
        &mut self,
        now: Time,
        reply: Option<DaemonReply>,
    ) -> Option<DaemonRequest> {
        {
            let mut slot = self.call_slot.0.borrow_mut();
            slot.now = now;
            slot.reply = reply;
        }
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.call_slot.0.borrow_mut().request.take(),
            Poll::Ready(()) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_resumes_after_its_request() {
        let call_slot = CallSlot::new(1);
        let (log, inner) = (Rc::new(RefCell::new(Vec::new())), call_slot.clone());
        let written = Rc::clone(&log);
        let mut program = Program::new(call_slot, async move {
            for seconds in [1, 2] {
                inner.sleep(Span::seconds(seconds)).await;
                written.borrow_mut().push(inner.now());
            }
        });
        assert!(matches!(program.resume(Time(5), None), Some(DaemonRequest::Sleep(Span(1000)))));
        assert!(matches!(
            program.resume(Time(7), Some(DaemonReply::Slept)),
            Some(DaemonRequest::Sleep(Span(2000)))
        ));
        assert!(program.resume(Time(9), Some(DaemonReply::Slept)).is_none());
        assert_eq!(*log.borrow(), [Time(7), Time(9)]);
    }
}
