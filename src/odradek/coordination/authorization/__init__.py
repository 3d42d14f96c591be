"""Who may do what: access control lists, and what they allow (KIP-11, KIP-290).

    acls         an ACL, a filter of ACLs, and which ones can be made
    authorizer   looks up what a principal may do with a resource

Source in Kafka: `StandardAuthorizer`.
"""
