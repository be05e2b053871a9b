/* The XML declaration, with which a message may begin. */
#ifndef SAPWOOD_XML_DECLARATION_H
#define SAPWOOD_XML_DECLARATION_H

/* The position after the byte order mark and the XML declaration of a message in UTF-8 or US-ASCII, if there
   are any, or NULL if the declaration is unusual or tells another encoding. */
const unsigned char *skip_xml_declaration(const unsigned char *at, const unsigned char *end);

#endif
