import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;

/**
 * Calls the methods of Kafka's Admin. Each line of the standard input is a call in JSON, and each
 * line of the output its result:
 *
 * <pre>
 * {"open": "root", "options": {"bootstrap.servers": "..."}}                       {"value": null}
 * {"client": "root", "method": "deleteTopics", "given": {"names": ["a"]}}         {"value": {"a": {"error": "..."}}}
 * {"methods": true}                                  {"value": {"declared": [...], "callable": [...]}}
 * </pre>
 *
 * A value has the names of Java's accessors. An error is Kafka's name of it, or the name of the
 * exception's class where there is none.
 */
public final class AdminCalls {
    private static final ObjectMapper JSON =
            new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);
    /** Accessors that say again what others say, or in another form. */
    private static final Set<String> LEFT_OUT = Set.of(
            "hashCode", "toString", "getClass", "clone", "toFilter", "isUnknown", "isEmpty", "idString",
            "hasRack", "findIndefiniteField", "matchesAtMostOne", "hmac", "ownerAsString", "tokenRequesterAsString", "renewersAsString", "notify",
            "notifyAll", "wait");

    private interface Call {
        Object on(Admin admin, Given given) throws Exception;
    }

    private static final Map<String, Call> CALLS = new TreeMap<>();
    private static final Map<String, Admin> CLIENTS = new HashMap<>();

    private AdminCalls() { }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        addTopics();
        addReplicas();
        addCluster();
        addGroups();
        addShareGroups();
        addTransactions();
        addSecurity();
        addClients();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.flush();
        }
        CLIENTS.values().forEach(client -> client.close(Duration.ZERO));
    }

    private static Map<String, Object> answer(JsonNode asked) throws JsonProcessingException {
        try {
            if (asked.has("methods")) {
                Set<String> declared = Arrays.stream(Admin.class.getMethods())
                        .filter(method -> !method.getDeclaringClass().equals(Object.class))
                        .map(Method::getName).collect(Collectors.toCollection(TreeSet::new));
                return value(Map.of("declared", List.copyOf(declared), "callable", List.copyOf(CALLS.keySet())));
            }
            if (asked.has("open")) {
                Admin client = Admin.create(new Given(asked.get("options")).texts());
                CLIENTS.put(asked.get("open").asText(), client);
                return value(null);
            }
            Admin client = CLIENTS.get(asked.get("client").asText());
            Object result = CALLS.get(asked.get("method").asText()).on(client, new Given(asked.get("given")));
            return value(form(result));
        } catch (Throwable error) {
            return refused(error);
        }
    }

    // -- calls ------------------------------------------------------------------------------

    private static void addTopics() {
        CALLS.put("createTopics", (admin, given) -> {
            List<NewTopic> topics = given.list("topics", AdminCalls::newTopic);
            CreateTopicsResult result = admin.createTopics(topics, new CreateTopicsOptions()
                    .validateOnly(given.is("validateOnly")).retryOnQuotaViolation(!given.is("once")));
            return each(result.values().keySet(), name -> {
                Map<String, Object> made = new TreeMap<>();
                made.put("topicId", got(result.topicId(name)));
                made.put("numPartitions", got(result.numPartitions(name)));
                made.put("replicationFactor", got(result.replicationFactor(name)));
                Map<String, String> config = new TreeMap<>();
                got(result.config(name)).entries().forEach(entry -> config.put(entry.name(), entry.value()));
                made.put("config", config);
                return made;
            });
        });
        CALLS.put("deleteTopics", (admin, given) -> {
            DeleteTopicsOptions options = new DeleteTopicsOptions().retryOnQuotaViolation(!given.is("once"));
            return given.has("ids")
                    ? admin.deleteTopics(TopicCollection.ofTopicIds(given.list("ids", AdminCalls::uuid)), options)
                            .topicIdValues()
                    : admin.deleteTopics(given.list("names", JsonNode::asText), options).topicNameValues();
        });
        CALLS.put("describeTopics", (admin, given) -> {
            DescribeTopicsOptions options =
                    new DescribeTopicsOptions().includeAuthorizedOperations(given.is("operations"));
            if (given.has("limit")) {
                options.partitionSizeLimitPerResponse(given.number("limit"));
            }
            return given.has("ids")
                    ? admin.describeTopics(TopicCollection.ofTopicIds(given.list("ids", AdminCalls::uuid)), options)
                            .topicIdValues()
                    : admin.describeTopics(given.list("names", JsonNode::asText), options).topicNameValues();
        });
        CALLS.put("listTopics", (admin, given) ->
                got(admin.listTopics(new ListTopicsOptions().listInternal(given.is("internal"))).namesToListings()));
        CALLS.put("createPartitions", (admin, given) -> {
            Map<String, NewPartitions> totals = given.map("totals", each -> each.has("assignments")
                    ? NewPartitions.increaseTo(each.get("total").asInt(),
                            listed(each.get("assignments"), brokers -> listed(brokers, JsonNode::asInt)))
                    : NewPartitions.increaseTo(each.get("total").asInt()));
            return admin.createPartitions(totals, new CreatePartitionsOptions()
                    .validateOnly(given.is("validateOnly")).retryOnQuotaViolation(!given.is("once"))).values();
        });
        CALLS.put("deleteRecords", (admin, given) -> admin.deleteRecords(
                given.byPartition("offsets", each -> RecordsToDelete.beforeOffset(each.asLong()))).lowWatermarks());
        CALLS.put("listOffsets", (admin, given) -> {
            Map<TopicPartition, OffsetSpec> specs = given.byPartition("specs", AdminCalls::offsetSpec);
            ListOffsetsResult result = admin.listOffsets(specs,
                    new ListOffsetsOptions(IsolationLevel.valueOf(given.text("isolation", "READ_UNCOMMITTED"))));
            return each(specs.keySet(), tp -> got(result.partitionResult(tp)));
        });
    }

    private static void addReplicas() {
        CALLS.put("electLeaders", (admin, given) -> {
            Map<TopicPartition, Object> elected = new HashMap<>();
            got(admin.electLeaders(ElectionType.valueOf(given.text("type", "PREFERRED")),
                    given.partitionsOrNull("partitions")).partitions())
                    .forEach((tp, error) -> elected.put(tp, error.map(AdminCalls::refused).orElse(value(null))));
            return elected;
        });
        CALLS.put("alterPartitionReassignments", (admin, given) -> admin.alterPartitionReassignments(
                given.byPartition("replicas", each -> each.isNull()
                        ? Optional.<NewPartitionReassignment>empty()
                        : Optional.of(new NewPartitionReassignment(listed(each, JsonNode::asInt)))),
                new AlterPartitionReassignmentsOptions()
                        .allowReplicationFactorChange(!given.is("sameFactor"))).values());
        CALLS.put("listPartitionReassignments", (admin, given) -> got(admin.listPartitionReassignments(
                Optional.ofNullable(given.partitionsOrNull("partitions")),
                new ListPartitionReassignmentsOptions()).reassignments()));
        CALLS.put("alterReplicaLogDirs", (admin, given) -> {
            Map<TopicPartitionReplica, String> paths = new LinkedHashMap<>();
            given.list("paths", each -> paths.put(replica(each), each.get(3).asText()));
            return admin.alterReplicaLogDirs(paths).values();
        });
        CALLS.put("describeLogDirs", (admin, given) ->
                admin.describeLogDirs(given.list("brokers", JsonNode::asInt)).descriptions());
        CALLS.put("describeReplicaLogDirs", (admin, given) ->
                admin.describeReplicaLogDirs(given.list("replicas", AdminCalls::replica)).values());
    }

    @SuppressWarnings("deprecation")
    private static void addCluster() {
        CALLS.put("describeCluster", (admin, given) -> {
            DescribeClusterResult result = admin.describeCluster(new DescribeClusterOptions()
                    .includeAuthorizedOperations(given.is("operations"))
                    .includeFencedBrokers(given.is("fenced")));
            Map<String, Object> cluster = new TreeMap<>();
            cluster.put("clusterId", got(result.clusterId()));
            cluster.put("nodes", got(result.nodes()));
            cluster.put("controller", got(result.nodes()).contains(got(result.controller())) ? "one of nodes" : "none");
            cluster.put("authorizedOperations", got(result.authorizedOperations()));
            return cluster;
        });
        CALLS.put("describeConfigs", (admin, given) ->
                admin.describeConfigs(given.list("resources", AdminCalls::resource), new DescribeConfigsOptions()
                        .includeSynonyms(given.is("synonyms"))
                        .includeDocumentation(given.is("documentation"))).values());
        CALLS.put("incrementalAlterConfigs", (admin, given) -> {
            Map<ConfigResource, Collection<AlterConfigOp>> changes = new LinkedHashMap<>();
            given.list("changes", each -> changes.put(resource(each), listed(each.get(2), op -> new AlterConfigOp(
                    new ConfigEntry(op.get(1).asText(), op.get(2).isNull() ? null : op.get(2).asText()),
                    AlterConfigOp.OpType.valueOf(op.get(0).asText())))));
            return admin.incrementalAlterConfigs(changes,
                    new AlterConfigsOptions().validateOnly(given.is("validateOnly"))).values();
        });
        CALLS.put("listConfigResources", (admin, given) -> given.has("types")
                ? got(admin.listConfigResources(
                        Set.copyOf(given.list("types", each -> ConfigResource.Type.valueOf(each.asText()))),
                        new ListConfigResourcesOptions()).all())
                : got(admin.listConfigResources().all()));
        CALLS.put("listClientMetricsResources", (admin, given) -> got(admin.listClientMetricsResources().all()));
        CALLS.put("describeFeatures", (admin, given) -> {
            DescribeFeaturesOptions options = new DescribeFeaturesOptions();
            if (given.has("node")) {
                options.nodeId(given.number("node"));
            }
            return got(admin.describeFeatures(options).featureMetadata());
        });
        CALLS.put("updateFeatures", (admin, given) -> admin.updateFeatures(
                given.map("levels", each -> new FeatureUpdate((short) each.get(0).asInt(),
                        FeatureUpdate.UpgradeType.valueOf(each.get(1).asText()))),
                new UpdateFeaturesOptions().validateOnly(given.is("validateOnly"))).values());
        CALLS.put("describeMetadataQuorum", (admin, given) -> got(admin.describeMetadataQuorum().quorumInfo()));
        CALLS.put("addRaftVoter", (admin, given) -> got(admin.addRaftVoter(given.number("voter"),
                uuid(given.node("directory")),
                Set.copyOf(given.list("endpoints", each -> new RaftVoterEndpoint(
                        each.get(0).asText(), each.get(1).asText(), each.get(2).asInt()))),
                new AddRaftVoterOptions().setClusterId(given.optionalText("cluster"))).all()));
        CALLS.put("removeRaftVoter", (admin, given) -> got(admin.removeRaftVoter(given.number("voter"),
                uuid(given.node("directory")),
                new RemoveRaftVoterOptions().setClusterId(given.optionalText("cluster"))).all()));
        CALLS.put("unregisterBroker", (admin, given) -> got(admin.unregisterBroker(given.number("id")).all()));
        CALLS.put("unregisterController",
                (admin, given) -> got(admin.unregisterController(given.number("id")).all()));
    }

    @SuppressWarnings("deprecation")
    private static void addGroups() {
        CALLS.put("listGroups", (admin, given) -> got(admin.listGroups(new ListGroupsOptions()
                .inGroupStates(given.set("states", each -> GroupState.parse(each.asText())))
                .withProtocolTypes(given.set("protocolTypes", JsonNode::asText))
                .withTypes(given.set("types", each -> GroupType.parse(each.asText())))).all()));
        CALLS.put("listConsumerGroups", (admin, given) -> got(admin.listConsumerGroups(new ListConsumerGroupsOptions()
                .inGroupStates(given.set("states", each -> GroupState.parse(each.asText())))
                .withTypes(given.set("types", each -> GroupType.parse(each.asText())))).all()));
        CALLS.put("describeConsumerGroups", (admin, given) -> admin.describeConsumerGroups(
                given.list("groups", JsonNode::asText), new DescribeConsumerGroupsOptions()
                        .includeAuthorizedOperations(given.is("operations"))).describedGroups());
        CALLS.put("describeClassicGroups", (admin, given) -> admin.describeClassicGroups(
                given.list("groups", JsonNode::asText), new DescribeClassicGroupsOptions()
                        .includeAuthorizedOperations(given.is("operations"))).describedGroups());
        CALLS.put("deleteConsumerGroups", (admin, given) ->
                admin.deleteConsumerGroups(given.list("groups", JsonNode::asText)).deletedGroups());
        CALLS.put("deleteStreamsGroups", (admin, given) ->
                admin.deleteStreamsGroups(given.list("groups", JsonNode::asText)).deletedGroups());
        CALLS.put("listConsumerGroupOffsets", (admin, given) -> {
            Map<String, ListConsumerGroupOffsetsSpec> specs = given.map("groups", each ->
                    new ListConsumerGroupOffsetsSpec().topicPartitions(each.isNull() ? null : partitions(each)));
            ListConsumerGroupOffsetsResult result = admin.listConsumerGroupOffsets(specs,
                    new ListConsumerGroupOffsetsOptions().requireStable(given.is("stable")));
            return each(specs.keySet(), group -> got(result.partitionsToOffsetAndMetadata(group)));
        });
        CALLS.put("listStreamsGroupOffsets", (admin, given) -> {
            Map<String, ListStreamsGroupOffsetsSpec> specs = given.map("groups", each ->
                    new ListStreamsGroupOffsetsSpec().topicPartitions(each.isNull() ? null : partitions(each)));
            ListStreamsGroupOffsetsResult result = admin.listStreamsGroupOffsets(specs,
                    new ListStreamsGroupOffsetsOptions().requireStable(given.is("stable")));
            return each(specs.keySet(), group -> got(result.partitionsToOffsetAndMetadata(group)));
        });
        CALLS.put("alterConsumerGroupOffsets", (admin, given) -> {
            Map<TopicPartition, OffsetAndMetadata> offsets = given.byPartition("offsets", AdminCalls::offset);
            AlterConsumerGroupOffsetsResult result = admin.alterConsumerGroupOffsets(given.text("group"), offsets);
            return each(offsets.keySet(), tp -> got(result.partitionResult(tp)));
        });
        CALLS.put("alterStreamsGroupOffsets", (admin, given) -> {
            Map<TopicPartition, OffsetAndMetadata> offsets = given.byPartition("offsets", AdminCalls::offset);
            AlterStreamsGroupOffsetsResult result = admin.alterStreamsGroupOffsets(given.text("group"), offsets);
            return each(offsets.keySet(), tp -> got(result.partitionResult(tp)));
        });
        CALLS.put("deleteConsumerGroupOffsets", (admin, given) -> {
            Set<TopicPartition> tps = given.partitionsOrNull("partitions");
            DeleteConsumerGroupOffsetsResult result = admin.deleteConsumerGroupOffsets(given.text("group"), tps);
            return each(tps, tp -> got(result.partitionResult(tp)));
        });
        CALLS.put("deleteStreamsGroupOffsets", (admin, given) -> {
            Set<TopicPartition> tps = given.partitionsOrNull("partitions");
            DeleteStreamsGroupOffsetsResult result = admin.deleteStreamsGroupOffsets(given.text("group"), tps);
            return each(tps, tp -> got(result.partitionResult(tp)));
        });
        CALLS.put("removeMembersFromConsumerGroup", (admin, given) -> {
            List<MemberToRemove> members = given.list("instances", each -> new MemberToRemove(each.asText()));
            RemoveMembersFromConsumerGroupResult result = admin.removeMembersFromConsumerGroup(given.text("group"),
                    new RemoveMembersFromConsumerGroupOptions(members));
            return each(members, MemberToRemove::groupInstanceId, member -> got(result.memberResult(member)));
        });
    }

    private static void addShareGroups() {
        CALLS.put("describeShareGroups", (admin, given) -> admin.describeShareGroups(
                given.list("groups", JsonNode::asText), new DescribeShareGroupsOptions()
                        .includeAuthorizedOperations(given.is("operations"))).describedGroups());
        CALLS.put("deleteShareGroups", (admin, given) ->
                admin.deleteShareGroups(given.list("groups", JsonNode::asText)).deletedGroups());
        CALLS.put("listShareGroupOffsets", (admin, given) -> {
            Map<String, ListShareGroupOffsetsSpec> specs = given.map("groups", each ->
                    new ListShareGroupOffsetsSpec().topicPartitions(each.isNull() ? null : partitions(each)));
            ListShareGroupOffsetsResult result = admin.listShareGroupOffsets(specs);
            return each(specs.keySet(), group -> got(result.partitionsToOffsetInfo(group)));
        });
        CALLS.put("alterShareGroupOffsets", (admin, given) -> {
            Map<TopicPartition, Long> offsets = given.byPartition("offsets", JsonNode::asLong);
            AlterShareGroupOffsetsResult result = admin.alterShareGroupOffsets(given.text("group"), offsets);
            return each(offsets.keySet(), tp -> got(result.partitionResult(tp)));
        });
        CALLS.put("deleteShareGroupOffsets", (admin, given) -> {
            List<String> topics = given.list("topics", JsonNode::asText);
            DeleteShareGroupOffsetsResult result =
                    admin.deleteShareGroupOffsets(given.text("group"), Set.copyOf(topics));
            return each(topics, topic -> got(result.topicResult(topic)));
        });
        CALLS.put("describeStreamsGroups", (admin, given) -> admin.describeStreamsGroups(
                given.list("groups", JsonNode::asText), new DescribeStreamsGroupsOptions()
                        .includeAuthorizedOperations(given.is("operations"))
                        .includeTopologyDescription(given.is("topology"))).describedGroups());
    }

    private static void addTransactions() {
        CALLS.put("listTransactions", (admin, given) -> {
            ListTransactionsOptions options = new ListTransactionsOptions()
                    .filterStates(given.list("states", each -> TransactionState.parse(each.asText())))
                    .filterProducerIds(given.list("producerIds", JsonNode::asLong));
            if (given.has("olderThanMs")) {
                options.filterOnDuration(given.number("olderThanMs"));
            }
            if (given.has("pattern")) {
                options.filterOnTransactionalIdPattern(given.text("pattern"));
            }
            return got(admin.listTransactions(options).all());
        });
        CALLS.put("describeTransactions", (admin, given) -> {
            List<String> ids = given.list("ids", JsonNode::asText);
            DescribeTransactionsResult result = admin.describeTransactions(ids);
            return each(ids, id -> got(result.description(id)));
        });
        CALLS.put("describeProducers", (admin, given) -> {
            Set<TopicPartition> tps = given.partitionsOrNull("partitions");
            DescribeProducersOptions options = new DescribeProducersOptions();
            if (given.has("broker")) {
                options.brokerId(given.number("broker"));
            }
            DescribeProducersResult result = admin.describeProducers(tps, options);
            return each(tps, tp -> got(result.partitionResult(tp)).activeProducers());
        });
        CALLS.put("abortTransaction", (admin, given) -> got(admin.abortTransaction(new AbortTransactionSpec(
                given.partition("partition"), given.node("producerId").asLong(), (short) given.number("epoch"),
                given.number("coordinatorEpoch"))).all()));
        CALLS.put("fenceProducers", (admin, given) -> {
            List<String> ids = given.list("ids", JsonNode::asText);
            FenceProducersResult result = admin.fenceProducers(ids);
            return each(ids, id -> Map.of("producerId", got(result.producerId(id)), "epochId", got(result.epochId(id))));
        });
        CALLS.put("forceTerminateTransaction",
                (admin, given) -> got(admin.forceTerminateTransaction(given.text("id")).result()));
    }

    private static void addSecurity() {
        CALLS.put("createAcls", (admin, given) -> admin.createAcls(given.list("acls", AdminCalls::acl)).values());
        CALLS.put("describeAcls", (admin, given) -> got(admin.describeAcls(aclFilter(given.node("filter"))).values()));
        CALLS.put("deleteAcls", (admin, given) -> {
            List<AclBindingFilter> filters = given.list("filters", AdminCalls::aclFilter);
            DeleteAclsResult result = admin.deleteAcls(filters);
            return each(filters, filter -> got(result.values().get(filter)).values());
        });
        CALLS.put("describeUserScramCredentials", (admin, given) -> {
            DescribeUserScramCredentialsResult result = given.has("users")
                    ? admin.describeUserScramCredentials(given.list("users", JsonNode::asText))
                    : admin.describeUserScramCredentials();
            List<String> users =
                    given.has("users") ? given.list("users", JsonNode::asText) : got(result.users());
            return each(users, user -> got(result.description(user)));
        });
        CALLS.put("alterUserScramCredentials", (admin, given) -> admin.alterUserScramCredentials(
                given.list("alterations", each -> {
                    ScramMechanism mechanism = ScramMechanism.valueOf(each.get(1).asText());
                    return each.size() == 2
                            ? (UserScramCredentialAlteration) new UserScramCredentialDeletion(
                                    each.get(0).asText(), mechanism)
                            : new UserScramCredentialUpsertion(each.get(0).asText(),
                                    new ScramCredentialInfo(mechanism, each.get(2).asInt()), each.get(3).asText());
                })).values());
        CALLS.put("createDelegationToken", (admin, given) -> {
            CreateDelegationTokenOptions options = new CreateDelegationTokenOptions()
                    .renewers(given.list("renewers", AdminCalls::principal));
            if (given.has("owner")) {
                options.owner(principal(given.node("owner")));
            }
            if (given.has("maxLifetimeMs")) {
                options.maxLifetimeMs(given.node("maxLifetimeMs").asLong());
            }
            return got(admin.createDelegationToken(options).delegationToken());
        });
        CALLS.put("describeDelegationToken", (admin, given) -> got(admin.describeDelegationToken(
                new DescribeDelegationTokenOptions().owners(
                        given.has("owners") ? given.list("owners", AdminCalls::principal) : null))
                .delegationTokens()));
        CALLS.put("renewDelegationToken", (admin, given) -> got(admin.renewDelegationToken(
                Base64.getDecoder().decode(given.text("hmac")), new RenewDelegationTokenOptions()
                        .renewTimePeriodMs(given.node("periodMs").asLong())).expiryTimestamp()));
        CALLS.put("expireDelegationToken", (admin, given) -> got(admin.expireDelegationToken(
                Base64.getDecoder().decode(given.text("hmac")), new ExpireDelegationTokenOptions()
                        .expiryTimePeriodMs(given.node("periodMs").asLong())).expiryTimestamp()));
        CALLS.put("describeClientQuotas", (admin, given) -> {
            List<ClientQuotaFilterComponent> components = given.list("components", each -> each.size() == 1
                    ? ClientQuotaFilterComponent.ofEntityType(each.get(0).asText())
                    : each.get(1).isNull() ? ClientQuotaFilterComponent.ofDefaultEntity(each.get(0).asText())
                    : ClientQuotaFilterComponent.ofEntity(each.get(0).asText(), each.get(1).asText()));
            return got(admin.describeClientQuotas(given.is("strict")
                    ? ClientQuotaFilter.containsOnly(components)
                    : ClientQuotaFilter.contains(components)).entities());
        });
        CALLS.put("alterClientQuotas", (admin, given) -> admin.alterClientQuotas(
                given.list("changes", each -> new ClientQuotaAlteration(
                        new ClientQuotaEntity(new Given(each.get(0)).texts()),
                        listed(each.get(1), op -> new ClientQuotaAlteration.Op(op.get(0).asText(),
                                op.get(1).isNull() ? null : op.get(1).asDouble())))),
                new AlterClientQuotasOptions().validateOnly(given.is("validateOnly"))).values());
    }

    private static void addClients() {
        CALLS.put("create", (admin, given) -> {
            try (Admin other = Admin.create(given.nested("options").texts())) {
                return got(other.describeCluster().clusterId());
            }
        });
        CALLS.put("close", (admin, given) -> {
            Admin other = Admin.create(given.nested("options").texts());
            other.close(Duration.ofMillis(given.number("timeoutMs")));
            return given.is("twice") ? twice(other) : got(other.describeCluster().clusterId());
        });
        CALLS.put("metrics", (admin, given) -> {
            got(admin.describeCluster().clusterId());
            Admin asked = admin;
            if (given.has("options")) {
                asked = Admin.create(given.nested("options").texts());
                got(asked.describeCluster().clusterId());
                asked.close();
            }
            return asked.metrics().values().stream()
                    .anyMatch(each -> each.metricName().name().equals("connection-creation-total"));
        });
        CALLS.put("registerMetricForSubscription", (admin, given) -> {
            admin.registerMetricForSubscription(metric(given));
            admin.registerMetricForSubscription(metric(given));
            return null;
        });
        CALLS.put("unregisterMetricFromSubscription", (admin, given) -> {
            admin.unregisterMetricFromSubscription(metric(given));
            return null;
        });
        CALLS.put("clientInstanceId", (admin, given) -> {
            Uuid id = admin.clientInstanceId(Duration.ofMillis(given.number("timeoutMs")));
            return id.equals(Uuid.ZERO_UUID) ? "none" : "an id";
        });
    }

    private static Object twice(Admin client) {
        client.close(Duration.ZERO);
        return null;
    }

    private static KafkaMetric metric(Given given) {
        MetricName name = given.has("name")
                ? new MetricName(given.text("name"), "parity", "", Map.of()) : null;
        return name == null ? null
                : new KafkaMetric(new Object(), name, (Measurable) (config, now) -> 1.0, new MetricConfig(), Time.SYSTEM);
    }

    // -- arguments --------------------------------------------------------------------------

    /** The arguments of a call. */
    private record Given(JsonNode all) {
        boolean has(String name) {
            return all.has(name) && !all.get(name).isNull();
        }

        boolean is(String name) {
            return has(name) && all.get(name).asBoolean();
        }

        JsonNode node(String name) {
            return all.get(name);
        }

        Given nested(String name) {
            return new Given(all.get(name));
        }

        int number(String name) {
            return all.get(name).asInt();
        }

        String text(String name) {
            return all.get(name).asText();
        }

        String text(String name, String otherwise) {
            return has(name) ? text(name) : otherwise;
        }

        Optional<String> optionalText(String name) {
            return has(name) ? Optional.of(text(name)) : Optional.empty();
        }

        <T> List<T> list(String name, Function<JsonNode, T> read) {
            return has(name) ? listed(all.get(name), read) : new ArrayList<>();
        }

        <T> Set<T> set(String name, Function<JsonNode, T> read) {
            return new LinkedHashSet<>(list(name, read));
        }

        <T> Map<String, T> map(String name, Function<JsonNode, T> read) {
            Map<String, T> found = new LinkedHashMap<>();
            all.get(name).properties().forEach(each -> found.put(each.getKey(), read.apply(each.getValue())));
            return found;
        }

        @SuppressWarnings("unchecked")
        <T> Map<String, T> texts() {
            Map<String, String> found = new LinkedHashMap<>();
            all.properties().forEach(each -> found.put(
                    each.getKey(), each.getValue().isNull() ? null : each.getValue().asText()));
            return (Map<String, T>) found;
        }

        <T> Map<TopicPartition, T> byPartition(String name, Function<JsonNode, T> read) {
            Map<TopicPartition, T> found = new LinkedHashMap<>();
            all.get(name).forEach(each -> found.put(
                    new TopicPartition(each.get(0).asText(), each.get(1).asInt()), read.apply(each.get(2))));
            return found;
        }

        TopicPartition partition(String name) {
            return partitions(JSON.createArrayNode().add(all.get(name))).iterator().next();
        }

        Set<TopicPartition> partitionsOrNull(String name) {
            return has(name) ? partitions(all.get(name)) : null;
        }
    }

    private static <T> List<T> listed(JsonNode given, Function<JsonNode, T> read) {
        return StreamSupport.stream(given.spliterator(), false).map(read)
                .collect(Collectors.toCollection(ArrayList::new));
    }

    private static Set<TopicPartition> partitions(JsonNode given) {
        return new LinkedHashSet<>(
                listed(given, each -> new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
    }

    private static NewTopic newTopic(JsonNode given) {
        NewTopic topic;
        if (given.has("assignments")) {
            Map<Integer, List<Integer>> assignments = new TreeMap<>();
            given.get("assignments").properties().forEach(each -> assignments.put(
                    Integer.valueOf(each.getKey()), listed(each.getValue(), JsonNode::asInt)));
            topic = new NewTopic(given.get("name").asText(), assignments);
        } else {
            topic = new NewTopic(given.get("name").asText(),
                    given.has("partitions") ? Optional.of(given.get("partitions").asInt()) : Optional.empty(),
                    given.has("factor") ? Optional.of((short) given.get("factor").asInt()) : Optional.empty());
        }
        return given.has("configs") ? topic.configs(new Given(given.get("configs")).texts()) : topic;
    }

    private static OffsetSpec offsetSpec(JsonNode given) {
        if (given.isNumber()) {
            return OffsetSpec.forTimestamp(given.asLong());
        }
        return switch (given.asText()) {
            case "LATEST" -> OffsetSpec.latest();
            case "EARLIEST" -> OffsetSpec.earliest();
            case "MAX_TIMESTAMP" -> OffsetSpec.maxTimestamp();
            case "EARLIEST_LOCAL" -> OffsetSpec.earliestLocal();
            case "LATEST_TIERED" -> OffsetSpec.latestTiered();
            default -> OffsetSpec.earliestPendingUpload();
        };
    }

    private static OffsetAndMetadata offset(JsonNode given) {
        return given.isNumber() ? new OffsetAndMetadata(given.asLong())
                : new OffsetAndMetadata(given.get(0).asLong(),
                        given.get(1).isNull() ? Optional.empty() : Optional.of(given.get(1).asInt()),
                        given.get(2).asText());
    }

    private static TopicPartitionReplica replica(JsonNode given) {
        return new TopicPartitionReplica(given.get(0).asText(), given.get(1).asInt(), given.get(2).asInt());
    }

    private static ConfigResource resource(JsonNode given) {
        return new ConfigResource(ConfigResource.Type.valueOf(given.get(0).asText()), given.get(1).asText());
    }

    private static Uuid uuid(JsonNode given) {
        return Uuid.fromString(given.asText());
    }

    private static KafkaPrincipal principal(JsonNode given) {
        String[] parts = given.asText().split(":", 2);
        return new KafkaPrincipal(parts[0], parts[1]);
    }

    /** Six texts: type, name, type of the pattern, principal, operation, permission; and the host. */
    private static AclBinding acl(JsonNode given) {
        return new AclBinding(
                new ResourcePattern(ResourceType.valueOf(given.get(0).asText()), given.get(1).asText(),
                        PatternType.valueOf(given.get(2).asText())),
                new AccessControlEntry(given.get(3).asText(), given.get(6).asText(),
                        AclOperation.valueOf(given.get(4).asText()), AclPermissionType.valueOf(given.get(5).asText())));
    }

    private static AclBindingFilter aclFilter(JsonNode given) {
        return new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.valueOf(given.get(0).asText()), orNull(given.get(1)),
                        PatternType.valueOf(given.get(2).asText())),
                new AccessControlEntryFilter(orNull(given.get(3)), orNull(given.get(6)),
                        AclOperation.valueOf(given.get(4).asText()), AclPermissionType.valueOf(given.get(5).asText())));
    }

    private static String orNull(JsonNode given) {
        return given.isNull() ? null : given.asText();
    }

    // -- results ----------------------------------------------------------------------------

    /** Returns the result, or throws the exception of the call. */
    private static <T> T got(KafkaFuture<T> future) {
        try {
            return future.get();
        } catch (ExecutionException failed) {
            throw new CompletionException(failed.getCause());
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    private static <K> Map<Object, Object> each(Collection<K> keys, Function<K, Object> read) {
        return each(keys, key -> key, read);
    }

    private static <K> Map<Object, Object> each(
            Collection<K> keys, Function<K, Object> named, Function<K, Object> read) {
        Map<Object, Object> found = new LinkedHashMap<>();
        for (K key : keys) {
            try {
                found.put(named.apply(key), value(read.apply(key)));
            } catch (RuntimeException error) {
                found.put(named.apply(key), refused(error));
            }
        }
        return found;
    }

    private static Map<String, Object> value(Object result) {
        Map<String, Object> found = new TreeMap<>();
        found.put("value", result);
        return found;
    }

    private static Map<String, Object> refused(Throwable given) {
        Throwable error = given;
        while ((error instanceof CompletionException || error instanceof ExecutionException
                || error instanceof InvocationTargetException) && error.getCause() != null) {
            error = error.getCause();
        }
        while (error.getClass().equals(org.apache.kafka.common.KafkaException.class) && error.getCause() != null) {
            error = error.getCause();
        }
        Errors code = Errors.forException(error);
        boolean known = code != Errors.UNKNOWN_SERVER_ERROR
                || error instanceof org.apache.kafka.common.errors.UnknownServerException;
        return Map.of(
                "error", known ? code.name() : error.getClass().getSimpleName(),
                "text", String.valueOf(error.getMessage()));
    }

    /** Returns a value as what JSON has: with the names of its accessors, if it is one of Kafka's. */
    private static Object form(Object given) throws Exception {
        if (given == null || given instanceof String || given instanceof Number || given instanceof Boolean) {
            return given;
        } else if (given instanceof Optional<?> some) {
            return form(some.orElse(null));
        } else if (given instanceof OptionalInt some) {
            return some.isPresent() ? some.getAsInt() : null;
        } else if (given instanceof OptionalLong some) {
            return some.isPresent() ? some.getAsLong() : null;
        } else if (given instanceof Enum<?> some) {
            return some.name();
        } else if (given instanceof byte[] some) {
            return Base64.getEncoder().encodeToString(some);
        } else if (given instanceof ByteBuffer some) {
            byte[] copied = new byte[some.remaining()];
            some.duplicate().get(copied);
            return form(copied);
        } else if (given instanceof ConfigResource some) {
            return some.type() + ":" + some.name();
        } else if (given instanceof Uuid || given instanceof TopicPartition || given instanceof KafkaPrincipal
                || given instanceof TopicPartitionReplica) {
            return given.toString();
        } else if (given instanceof KafkaFuture<?> some) {
            return future(some);
        } else if (given instanceof Throwable some) {
            return refused(some);
        } else if (given instanceof Collection<?> some) {
            List<Object> formed = new ArrayList<>();
            for (Object each : some) {
                formed.add(form(each));
            }
            if (given instanceof Set) {
                formed.sort(Comparator.comparing(AdminCalls::text));
            }
            return formed;
        } else if (given instanceof Map<?, ?> some) {
            Map<String, Object> formed = new TreeMap<>();
            for (Map.Entry<?, ?> each : some.entrySet()) {
                formed.put(text(form(each.getKey())), form(each.getValue()));
            }
            return formed;
        } else if (given instanceof TopicPartitionInfo some) {
            return partition(some);
        }
        return fields(given);
    }

    private static Object future(KafkaFuture<?> given) throws Exception {
        try {
            return value(form(got(given)));
        } catch (RuntimeException error) {
            return refused(error);
        }
    }

    private static Map<String, Object> partition(TopicPartitionInfo given) throws Exception {
        Map<String, Object> formed = fields(given);
        formed.put("leader", given.leader() == null ? null : given.leader().id());
        formed.put("replicas", ids(given.replicas()));
        formed.put("isr", ids(given.isr()));
        formed.put("elr", ids(given.elr()));
        formed.put("lastKnownElr", ids(given.lastKnownElr()));
        return formed;
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes == null ? null : nodes.stream().map(Node::id).toList();
    }

    private static Map<String, Object> fields(Object given) throws Exception {
        Map<String, Object> formed = new TreeMap<>();
        for (Method method : given.getClass().getMethods()) {
            if (method.getParameterCount() == 0 && !Modifier.isStatic(method.getModifiers())
                    && !method.getReturnType().equals(void.class) && !LEFT_OUT.contains(method.getName())
                    && !method.isAnnotationPresent(Deprecated.class)) {
                method.setAccessible(true);
                formed.put(method.getName(), form(method.invoke(given)));
            }
        }
        return formed;
    }

    private static String text(Object formed) {
        try {
            return formed instanceof String some ? some : JSON.writeValueAsString(formed);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
