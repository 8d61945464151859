//! Random sequences of events.

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Hello(u8, u8),
    Poll(u8, bool),
    NewEpoch(u8, bool),
    Bye(u8),
    Move(u8, u8),
    See(u32, u8),
    Mark(u8),
    Bytes(Vec<u8>),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..6, 0u8..3).prop_map(|(id, port)| Step::Hello(id, port)),
        (0u8..6, any::<bool>()).prop_map(|(id, right)| Step::Poll(id, right)),
        (0u8..6, any::<bool>()).prop_map(|(id, right)| Step::NewEpoch(id, right)),
        (0u8..6).prop_map(Step::Bye),
        (0u8..6, 0u8..3).prop_map(|(id, port)| Step::Move(id, port)),
        (any::<u32>(), 0u8..3).prop_map(|(id, port)| Step::See(id, port)),
        any::<u8>().prop_map(Step::Mark),
        prop::collection::vec(any::<u8>(), 0..60).prop_map(Step::Bytes),
        (0u32..20_000_000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// After any sequence of events the tables agree with each other, and the limits hold.
    #[test]
    fn any_sequence_keeps_the_limits(steps in prop::collection::vec(step(), 1..100)) {
        let mut b = bench(ObserverConfig { max_sessions: 4, ..ObserverConfig::default() });
        let mut epochs = [1u16; 6];
        for step in steps {
            let known = |b: &Bench, id: u8| b.seals.contains_key(&u32::from(id));
            let epoch = |id: u8, right: bool| if right { epochs[usize::from(id)] } else { 77 };
            match step {
                Step::Hello(id, port) => {
                    b.flow.source.set_port(4000 + u16::from(port));
                    let _ = b.hello(id.into(), Terms::default());
                    epochs[usize::from(id)] = 1;
                }
                Step::Poll(id, right) if known(&b, id) => {
                    let _ = b.poll(id.into(), epoch(id, right), 4);
                }
                Step::NewEpoch(id, right) if known(&b, id) => {
                    let request = Message::NewEpoch { epoch: epoch(id, right) };
                    epochs[usize::from(id)] += u16::from(b.send(id.into(), request).is_ok());
                }
                Step::Bye(id) if known(&b, id) => {
                    let _ = b.send(id.into(), Message::Bye);
                }
                Step::Move(id, port) if known(&b, id) => {
                    let from = SocketAddr::from(([192, 0, 2, 1], 6000 + u16::from(port)));
                    let poll = Poll { epoch: 1, token: 1, sums: 0 };
                    let _ = b.send_from(from, id.into(), Message::Poll(poll));
                }
                Step::See(id, port) => {
                    b.flow.source.set_port(4000 + u16::from(port));
                    b.capture(id, 0);
                }
                Step::Mark(nonce) => {
                    b.mark(nonce, Reply::Path);
                }
                Step::Bytes(bytes) => {
                    let _ = b.observer.handle_input(peer(), &bytes, b.now);
                }
                Step::Wait(us) => {
                    b.now += Duration::from_micros(us.into());
                    b.observer.on_timeout(b.now);
                }
                _ => {}
            }
            while b.next_sent().is_some() {}
            b.observer.table.check();
            prop_assert!(b.observer.sessions() <= 4);
            prop_assert_eq!(b.observer.poll_timeout().is_none(), b.observer.sessions() == 0);
            prop_assert!(b.observer.poll_timeout().is_none_or(|at| at > b.now));
        }
    }
}
