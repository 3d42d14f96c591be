// Does with kafkajs what tests/peers/go does with clients for Go: the same commands, the same output.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs")

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const [command, servers, topic, ...rest] = process.argv.slice(2)

// How it logs in: as tests/peers/go/login.go does.
const { CLIENT_MECHANISM: mechanism, CLIENT_USER: username, CLIENT_PASSWORD: password, CLIENT_CA: ca } = process.env
const login = {
  ...(mechanism && {
    sasl: {
      mechanism: mechanism.toLowerCase(),
      ...(mechanism === "OAUTHBEARER"
        ? { oauthBearerProvider: async () => ({ value: password }) }
        : { username, password }),
    },
  }),
  ...(ca && { ssl: { ca: [require("fs").readFileSync(ca, "utf-8")] } }),
}
const kafka = new Kafka({ clientId: "kafkajs", brokers: servers.split(","), logLevel: logLevel.ERROR, ...login })

const messages = (prefix, count) =>
  Array.from({ length: count }, (_, number) => ({ key: `k${number}`, value: `${prefix}${number}` }))

async function produce(codec, count) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, allowAutoTopicCreation: true })
  await producer.connect()
  await producer.send({ topic, acks: -1, compression: codecs[codec], messages: messages("v", Number(count)) })
  await producer.disconnect()
}

async function consume(group, count, level) {
  const consumer = kafka.consumer({ groupId: group, readUncommitted: level !== "read_committed" })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let left = Number(count)
  await new Promise((resolve, reject) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (left === 0) return
        console.log(partition, message.offset, message.key.toString(), message.value.toString())
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
        left -= 1
        if (left === 0) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
}

async function transact(id, count) {
  const producer = kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const [prefix, end] of [["c", "commit"], ["a", "abort"]]) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: messages(prefix, Number(count)) })
    await transaction[end]()
  }
  await producer.disconnect()
}

async function admin() {
  const client = kafka.admin()
  await client.connect()
  await client.createTopics({
    topics: [{ topic, numPartitions: 3, configEntries: [{ name: "retention.ms", value: "60000" }] }],
  })
  const found = await client.fetchTopicMetadata({ topics: [topic] })
  const configs = await client.describeConfigs({ resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }] })
  console.log(found.topics[0].partitions.length, configs.resources[0].configEntries[0].configValue)
  await client.deleteTopics({ topics: [topic] })
  await client.disconnect()
}

const commands = { produce, consume, transact, admin }
commands[command](...rest).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
