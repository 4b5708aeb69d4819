//! A program that waits, written down as it reads: one that asks, then goes on with the answer.
//!
//! amazon-vpc-cni's pool manager is one thread that sleeps and calls. Here it is an `async fn` whose
//! every wait is an [`DaemonRequest`]; whoever drives it says when the answer has come.

use crate::pool::{
    desk::{DaemonReply, DaemonRequest},
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

/// What the program and its driver share.
#[derive(Debug)]
struct Slot {
    now: Time,
    ask: Option<DaemonRequest>,
    told: Option<DaemonReply>,
    rng: Rng,
}

/// The program's end.
#[derive(Clone, Debug)]
pub(super) struct CallSlot(Rc<RefCell<Slot>>);

impl CallSlot {
    pub(super) fn new(seed: u64) -> Self {
        let slot = Slot { now: Time(0), ask: None, told: None, rng: Rng::new(seed) };
        Self(Rc::new(RefCell::new(slot)))
    }

    pub(super) fn now(&self) -> Time {
        self.0.borrow().now
    }

    /// Draws by chance.
    pub(super) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.0.borrow_mut().rng)
    }

    pub(super) async fn sleep(&self, span: Span) {
        self.ask(DaemonRequest::Sleep(span)).await;
    }

    /// One call, once.
    pub(super) async fn ec2(&self, request: Request) -> Result<Response, CallError> {
        match self.ask(DaemonRequest::Ec2(Box::new(request))).await {
            DaemonReply::Ec2(result) => result,
            DaemonReply::Slept | DaemonReply::Imds(_) | DaemonReply::Links(_) => {
                Err(CallError::ReplyLost)
            }
        }
    }

    pub(super) async fn imds(&self) -> Vec<Arc<NetworkInterface>> {
        match self.ask(DaemonRequest::Imds).await {
            DaemonReply::Imds(enis) => enis,
            DaemonReply::Slept | DaemonReply::Ec2(_) | DaemonReply::Links(_) => Vec::new(),
        }
    }

    async fn ask(&self, ask: DaemonRequest) -> DaemonReply {
        self.0.borrow_mut().ask = Some(ask);
        std::future::poll_fn(|_| match self.0.borrow_mut().told.take() {
            Some(told) => Poll::Ready(told),
            None => Poll::Pending,
        })
        .await
    }
}

/// The driver's end.
pub(super) struct Program {
    hands: CallSlot,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Program {
    pub(super) fn new(hands: CallSlot, future: impl Future<Output = ()> + 'static) -> Self {
        Self { hands, future: Box::pin(future) }
    }

    /// Goes on, with the answer that it waits for, to its next question.
    pub(super) fn go_on(&mut self, now: Time, told: Option<DaemonReply>) -> Option<DaemonRequest> {
        {
            let mut slot = self.hands.0.borrow_mut();
            slot.now = now;
            slot.told = told;
        }
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.hands.0.borrow_mut().ask.take(),
            Poll::Ready(()) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_goes_on_where_it_asked() {
        let hands = CallSlot::new(1);
        let (log, inner) = (Rc::new(RefCell::new(Vec::new())), hands.clone());
        let written = Rc::clone(&log);
        let mut program = Program::new(hands, async move {
            for seconds in [1, 2] {
                inner.sleep(Span::seconds(seconds)).await;
                written.borrow_mut().push(inner.now());
            }
        });
        assert!(matches!(program.go_on(Time(5), None), Some(DaemonRequest::Sleep(Span(1000)))));
        assert!(matches!(
            program.go_on(Time(7), Some(DaemonReply::Slept)),
            Some(DaemonRequest::Sleep(Span(2000)))
        ));
        assert!(program.go_on(Time(9), Some(DaemonReply::Slept)).is_none());
        assert_eq!(*log.borrow(), [Time(7), Time(9)]);
    }
}
