//! The broker's end of a connection of MQTT 5.
//!
//! It supports QoS 0 and 1, and last values (RETAIN). CONNACK denies what it does not support:
//! QoS 2, wildcards, shared subscriptions, subscription identifiers, and sessions that outlast
//! their connection. It refuses wills, topic aliases, authentication methods and No Local, and
//! ignores the user name, Message Expiry and Retain As Published. The password is the secret of the
//! client identifier, which names the publisher.
//!
//! Contrary to MQTT 5, section 3.1.4, a second client with the same identifier does not end the
//! first. With the same password, or without one from the same address, they share one sequence of
//! numbers. Otherwise the broker refuses the second one's numbered messages.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::BytesMut;
use h3_server::quota::Client;
use mqtt5_protocol::packet::connack::ConnAckPacket;
use mqtt5_protocol::packet::connect::ConnectPacket;
use mqtt5_protocol::packet::disconnect::DisconnectPacket;
use mqtt5_protocol::packet::pingresp::PingRespPacket;
use mqtt5_protocol::packet::puback::PubAckPacket;
use mqtt5_protocol::packet::publish::PublishPacket;
use mqtt5_protocol::packet::suback::{SubAckPacket, SubAckReasonCode};
use mqtt5_protocol::packet::subscribe::{SubscribePacket, TopicFilter};
use mqtt5_protocol::packet::subscribe_options::RetainHandling;
use mqtt5_protocol::packet::unsuback::{UnsubAckPacket, UnsubAckReasonCode};
use mqtt5_protocol::packet::unsubscribe::UnsubscribePacket;
use mqtt5_protocol::{MqttError, Packet, QoS, ReasonCode};

use super::{ADDED, FIRST, FROM, INSTANCE, MISSED, SEQUENCE, TIME, next, number, packet, write};
use crate::broker::Refusal;
use crate::broker::topics::{Broker, Publisher, Subscriber};
use crate::name::{PublisherName, TopicName};
use crate::topic::publishers::Owner;
use crate::topic::{Item, Message, Start};

#[cfg(test)]
mod tests;

/// The most messages of a subscriber that wait for their acknowledgement.
const MOST_IN_FLIGHT: usize = 1000;

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client left.
    Left,
    /// The broker ended it, for this reason. The last packet contains the reason.
    Refused(String),
}

/// The settings in the client's CONNECT.
#[derive(Debug)]
struct Connected {
    name: PublisherName,
    /// To whom the name belongs: the password is its secret.
    owner: Owner,
    /// The longest time without a packet.
    patience: Option<Duration>,
    receive_maximum: usize,
    longest_packet: usize,
}

#[derive(Debug)]
struct Subscription {
    topic: TopicName,
    subscriber: Subscriber,
    qos: QoS,
    /// Messages that the broker no longer has. The next message reports the number.
    missed: u64,
}

#[derive(Debug)]
pub(crate) struct Session<'a> {
    broker: &'a Broker,
    client: Client,
    /// The received part of a packet.
    received: BytesMut,
    connected: Option<Connected>,
    publishers: HashMap<TopicName, Publisher>,
    subscriptions: Vec<Subscription>,
    /// Identifiers of the packets that wait for their acknowledgement. A client acknowledges in the
    /// order of arrival (MQTT 5, section 4.6).
    in_flight: VecDeque<u16>,
    latest_id: u16,
    /// The subscription that sends next.
    turn: usize,
}

impl<'a> Session<'a> {
    pub(crate) fn new(broker: &'a Broker, client: Client) -> Self {
        Self {
            broker,
            client,
            received: BytesMut::new(),
            connected: None,
            publishers: HashMap::new(),
            subscriptions: Vec::new(),
            in_flight: VecDeque::new(),
            latest_id: 0,
            turn: 0,
        }
    }

    /// The bytes of the longest packet.
    pub(crate) fn longest(&self) -> usize {
        self.broker.limits.max_message as usize + ADDED
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.is_some()
    }

    /// How long the client may be silent; `None` for no limit.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.connected.as_ref().and_then(|connected| connected.patience)
    }

    /// Whether the client's stream may end here.
    pub(crate) fn may_end(&self) -> bool {
        self.received.is_empty()
    }

    /// Its subscribers, to wait for their messages.
    pub(crate) fn subscribers(&mut self) -> impl Iterator<Item = &mut Subscriber> {
        self.subscriptions.iter_mut().map(|subscription| &mut subscription.subscriber)
    }

    /// Whether the client accepts another message now.
    pub(crate) fn may_deliver(&self) -> bool {
        let most = self.connected.as_ref().map_or(0, |connected| connected.receive_maximum);
        self.in_flight.len() < most
    }

    /// Receives bytes of the client, and appends answers to `out`.
    pub(crate) fn receive(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<(), End> {
        self.received.extend_from_slice(bytes);
        let longest = self.longest();
        loop {
            match next(&mut self.received, longest) {
                Ok(Some(packet)) => self.handle(packet, out)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.refuse(&refusal(code(&error), error), out)),
            }
        }
    }

    fn handle(&mut self, packet: Packet, out: &mut BytesMut) -> Result<(), End> {
        let done = match (packet, self.is_connected()) {
            (Packet::Connect(connect), false) => self.connect(&connect, out),
            (_, false) => return Err(End::Refused("the first packet is not CONNECT".to_owned())),
            (Packet::Disconnect(_), true) => return Err(End::Left),
            (Packet::Publish(publish), true) => self.publish(publish, out),
            (Packet::PubAck(acknowledged), true) => {
                match self.in_flight.pop_front() == Some(acknowledged.packet_id) {
                    true => Ok(()),
                    false => Err(refusal(
                        ReasonCode::ProtocolError,
                        "PUBACK of another packet than the first that waits",
                    )),
                }
            }
            (Packet::Subscribe(subscribe), true) => {
                self.subscribe(&subscribe, out);
                Ok(())
            }
            (Packet::Unsubscribe(unsubscribe), true) => {
                self.unsubscribe(&unsubscribe, out);
                Ok(())
            }
            (Packet::PingReq, true) => {
                write(&PingRespPacket::default(), out);
                Ok(())
            }
            (other, true) => {
                let reason = format!("{} is not for this broker", other.packet_type_name());
                Err(refusal(ReasonCode::ProtocolError, reason))
            }
        };
        done.map_err(|refusal| self.refuse(&refusal, out))
    }

    fn connect(&mut self, connect: &ConnectPacket, out: &mut BytesMut) -> Result<(), Refusal> {
        let properties = &connect.properties;
        let wrong = if connect.protocol_version != 5 {
            Some((ReasonCode::UnsupportedProtocolVersion, "this broker speaks MQTT 5 only"))
        } else if connect.will.is_some() {
            Some((ReasonCode::ImplementationSpecificError, "this broker publishes no wills"))
        } else if properties.get_authentication_method().is_some() {
            Some((ReasonCode::BadAuthenticationMethod, "this broker offers no authentication"))
        } else {
            None
        };
        accept(wrong)?;
        let name = match &*connect.client_id {
            "" => PublisherName::random()
                .map_err(|error| refusal(ReasonCode::UnspecifiedError, error))?,
            id => PublisherName::new(id)
                .map_err(|error| refusal(ReasonCode::ClientIdentifierNotValid, error))?,
        };
        let mut accepted = ConnAckPacket::new(false, ReasonCode::Success)
            .with_maximum_qos(1)
            .with_maximum_packet_size(u32::try_from(self.longest()).unwrap_or(u32::MAX))
            .with_session_expiry_interval(0)
            .with_wildcard_subscription_available(false)
            .with_subscription_identifier_available(false)
            .with_shared_subscription_available(false)
            .with_user_property(INSTANCE.to_owned(), self.broker.instance().to_string());
        if connect.client_id.is_empty() {
            accepted = accepted.with_assigned_client_id(name.as_str().to_owned());
        }
        write(&accepted, out);
        let half = Duration::from_secs(connect.keep_alive.into()) / 2;
        self.connected = Some(Connected {
            name,
            owner: self.broker.owner(self.client, connect.password.as_deref()),
            // MQTT 5, section 3.1.2.10.
            patience: (!half.is_zero()).then_some(3 * half),
            receive_maximum: properties
                .get_receive_maximum()
                .map_or(MOST_IN_FLIGHT, |most| usize::from(most).clamp(1, MOST_IN_FLIGHT)),
            longest_packet: properties
                .get_maximum_packet_size()
                .map_or(usize::MAX, |most| most as usize),
        });
        Ok(())
    }

    fn publish(&mut self, publish: PublishPacket, out: &mut BytesMut) -> Result<(), Refusal> {
        let wrong = if publish.qos == QoS::ExactlyOnce {
            Some((ReasonCode::QoSNotSupported, "this broker supports QoS 0 and 1"))
        } else if publish.topic_alias().is_some() {
            Some((ReasonCode::TopicAliasInvalid, "this broker knows no topic aliases"))
        } else if publish.payload.len() > self.broker.limits.max_message as usize {
            Some((ReasonCode::PacketTooLarge, "the message is too long for this broker"))
        } else if publish.packet_id == Some(0) {
            Some((ReasonCode::ProtocolError, "a packet identifier is 0"))
        } else {
            None
        };
        accept(wrong)?;
        // By QoS 0, only the end of the connection tells the client of a refusal.
        let Some(id) = publish.packet_id else { return self.take(publish) };
        match self.take(publish) {
            Ok(()) => write(&PubAckPacket::new(id), out),
            Err(refusal) => {
                let packet = PubAckPacket::new_with_reason(id, refusal.code());
                write(&packet.with_reason_string(refusal.to_string()), out);
            }
        }
        Ok(())
    }

    fn take(&mut self, publish: PublishPacket) -> Result<(), Refusal> {
        let topic = TopicName::new(&publish.topic_name)?;
        if !self.publishers.contains_key(&topic) {
            self.check_number(self.publishers.len(), "topics to publish to")?;
            let publisher = self.broker.publisher(self.client, &topic)?;
            self.publishers.insert(topic.clone(), publisher);
        }
        let publisher = self.publishers.get_mut(&topic).ok_or(Refusal::Path)?;
        let own = number(&publish.properties, SEQUENCE);
        let time = number(&publish.properties, TIME).unwrap_or(0);
        // Without a number, the name means nothing.
        if let (Some(_), Some(connected)) = (own, &self.connected) {
            publisher.take_name(connected.name.clone(), connected.owner)?;
        }
        Ok(publisher.publish(own, time, publish.payload, publish.retain)?)
    }

    fn check_number(&self, present: usize, what: &'static str) -> Result<(), Refusal> {
        let most = self.broker.limits.max_requests;
        match present < most as usize {
            true => Ok(()),
            false => Err(Refusal::Connection(most, what)),
        }
    }

    fn subscribe(&mut self, subscribe: &SubscribePacket, out: &mut BytesMut) {
        let mut packet = SubAckPacket::new(subscribe.packet_id);
        for filter in &subscribe.filters {
            let code = match self.add(subscribe, filter) {
                Ok((qos, first)) => {
                    packet = packet.with_user_property(FIRST.to_owned(), first.to_string());
                    SubAckReasonCode::from_qos(qos)
                }
                Err(refusal) => {
                    packet.properties.set_reason_string(refusal.to_string());
                    SubAckReasonCode::from_u8(refusal.code().into())
                        .unwrap_or(SubAckReasonCode::UnspecifiedError)
                }
            };
            packet = packet.add_reason_code(code);
        }
        write(&packet, out);
    }

    /// Subscribes. Returns the granted QoS, and the number of the first message.
    fn add(
        &mut self,
        subscribe: &SubscribePacket,
        filter: &TopicFilter,
    ) -> Result<(QoS, u64), Refusal> {
        let TopicFilter { filter, options } = filter;
        let properties = &subscribe.properties;
        let wrong = if filter.starts_with("$share/") {
            Some((
                ReasonCode::SharedSubscriptionsNotSupported,
                "this broker shares no subscriptions",
            ))
        } else if filter.contains(['+', '#']) {
            Some((ReasonCode::WildcardSubscriptionsNotSupported, "this broker knows no wildcards"))
        } else if properties.get_subscription_identifier().is_some() {
            let reason = "this broker knows no subscription identifiers";
            Some((ReasonCode::SubscriptionIdentifiersNotSupported, reason))
        } else if options.no_local {
            let reason = "this broker does not support No Local";
            Some((ReasonCode::ImplementationSpecificError, reason))
        } else {
            None
        };
        accept(wrong)?;
        let topic = TopicName::new(filter)
            .map_err(|error| refusal(ReasonCode::TopicFilterInvalid, error))?;
        let qos = match options.qos {
            QoS::AtMostOnce => QoS::AtMostOnce,
            QoS::AtLeastOnce | QoS::ExactlyOnce => QoS::AtLeastOnce,
        };
        let present = self.subscriptions.len();
        let known = self.subscriptions.iter_mut().find(|known| known.topic == topic);
        let from = number(properties, FROM);
        let start = match options.retain_handling {
            _ if from.is_some() => self.broker.start(from, number(properties, INSTANCE)),
            RetainHandling::DoNotSend => Start::Next,
            RetainHandling::SendAtSubscribeIfNew if known.is_some() => Start::Next,
            RetainHandling::SendAtSubscribe | RetainHandling::SendAtSubscribeIfNew => Start::Last,
        };
        if let Some(known) = known {
            // The new subscription replaces the former, and loses no message (MQTT 5, section
            // 3.8.4).
            known.qos = qos;
            known.subscriber.again(start);
            return Ok((qos, known.subscriber.first()));
        }
        self.check_number(present, "subscriptions")?;
        let subscriber = self.broker.subscriber(self.client, &topic, start)?;
        let first = subscriber.first();
        self.subscriptions.push(Subscription { topic, subscriber, qos, missed: 0 });
        Ok((qos, first))
    }

    fn unsubscribe(&mut self, unsubscribe: &UnsubscribePacket, out: &mut BytesMut) {
        let mut packet = UnsubAckPacket::new(unsubscribe.packet_id);
        for filter in &unsubscribe.filters {
            let known = self.subscriptions.iter().position(|known| known.topic.as_str() == filter);
            packet = packet.add_reason_code(match known {
                Some(index) => {
                    self.subscriptions.swap_remove(index);
                    UnsubAckReasonCode::Success
                }
                None => UnsubAckReasonCode::NoSubscriptionExisted,
            });
        }
        write(&packet, out);
    }

    /// Appends messages to `out`, until it has `enough` bytes or there are no more. Subscriptions
    /// take turns, also from call to call. So a busy topic does not starve another.
    pub(crate) fn deliver(&mut self, out: &mut BytesMut, enough: usize) {
        let mut silent = 0;
        while silent < self.subscriptions.len() && out.len() < enough && self.may_deliver() {
            let index = self.turn % self.subscriptions.len();
            let Some(subscription) = self.subscriptions.get_mut(index) else { return };
            self.turn = index + 1;
            silent = match subscription.subscriber.read() {
                None => silent + 1,
                Some(Item::Missed(count)) => {
                    subscription.missed += count;
                    0
                }
                Some(Item::Last(message)) => {
                    self.send(index, message, true, out);
                    0
                }
                Some(Item::Message(message)) => {
                    self.send(index, message, false, out);
                    0
                }
            };
        }
    }

    /// Appends a message of this subscription.
    fn send(&mut self, index: usize, message: Message, last: bool, out: &mut BytesMut) {
        let (Some(subscription), Some(connected)) =
            (self.subscriptions.get_mut(index), &self.connected)
        else {
            return;
        };
        let mut packet = packet(&subscription.topic, &message, subscription.qos).with_retain(last);
        if subscription.missed > 0 {
            packet = packet.with_user_property(MISSED.to_owned(), subscription.missed.to_string());
        }
        // Far fewer identifiers are in flight than exist.
        let id = self.latest_id.checked_add(1).unwrap_or(1);
        packet = packet.with_packet_id(id);
        let begin = out.len();
        write(&packet, out);
        if out.len() - begin > connected.longest_packet {
            // The broker must not send a longer one (MQTT 5, section 3.1.2.11.4).
            out.truncate(begin);
            subscription.missed += 1;
            return;
        }
        subscription.missed = 0;
        if subscription.qos != QoS::AtMostOnce {
            self.latest_id = id;
            self.in_flight.push_back(id);
        }
    }

    /// Ends the session, and sends the client the reason.
    fn refuse(&self, refusal: &Refusal, out: &mut BytesMut) -> End {
        let (code, reason) = (refusal.code(), refusal.to_string());
        match self.is_connected() {
            true => write(&DisconnectPacket::new(code).with_reason_string(reason.clone()), out),
            false => {
                write(&ConnAckPacket::new(false, code).with_reason_string(reason.clone()), out);
            }
        }
        End::Refused(reason)
    }
}

fn refusal(code: ReasonCode, reason: impl ToString) -> Refusal {
    Refusal::Packet(code, reason.to_string())
}

/// Accepts a packet unless it is `wrong`.
fn accept(wrong: Option<(ReasonCode, &str)>) -> Result<(), Refusal> {
    wrong.map_or(Ok(()), |(code, reason)| Err(refusal(code, reason)))
}

/// The reason code for an unreadable packet.
fn code(error: &MqttError) -> ReasonCode {
    match error {
        MqttError::PacketTooLarge { .. } => ReasonCode::PacketTooLarge,
        MqttError::ProtocolError(_) => ReasonCode::ProtocolError,
        _ => ReasonCode::MalformedPacket,
    }
}
